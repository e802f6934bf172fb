"""An airline, as in τ²-bench's airline domain: users, flights and reservations, and the tools of its service desk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

from gymnast.kit import ToolError, tool

from .service import Database, Service, as_json, find

Entry = dict[str, Any]
Cabin = Literal["business", "economy", "basic_economy"]
NOW: Final = "2024-05-15T15:00:00"
_RESERVATIONS: Final = ("HATHAT", "HATHAU", "HATHAV")
_CERTIFICATES: Final = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
_BAG_PRICE: Final = 50
_INSURANCE_PRICE: Final = 30
_AIRPORTS: Final = {
    "SFO": "San Francisco",
    "JFK": "New York",
    "LAX": "Los Angeles",
    "ORD": "Chicago",
    "DFW": "Dallas",
    "DEN": "Denver",
    "SEA": "Seattle",
    "ATL": "Atlanta",
    "MIA": "Miami",
    "BOS": "Boston",
    "PHX": "Phoenix",
    "IAH": "Houston",
    "LAS": "Las Vegas",
    "MCO": "Orlando",
    "EWR": "Newark",
    "CLT": "Charlotte",
    "MSP": "Minneapolis",
    "DTW": "Detroit",
    "PHL": "Philadelphia",
    "LGA": "LaGuardia",
}


class _Argument(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FlightInfo(_Argument):
    flight_number: str
    date: str


class Passenger(_Argument):
    first_name: str
    last_name: str
    dob: str


class Payment(_Argument):
    payment_id: str
    amount: int


class Airline(Service):
    """The airline's service desk."""

    example_database: ClassVar[Path] = Path(__file__).parent / "data" / "airline.json"

    @tool
    async def get_user_details(self, session: Database, user_id: str) -> Any:
        """Get a user: membership, payment methods and reservations.

        Args:
            user_id: The user's ID.
        """
        return as_json(_user(session, user_id))

    @tool
    async def get_reservation_details(self, session: Database, reservation_id: str) -> Any:
        """Get a reservation.

        Args:
            reservation_id: The reservation's ID, such as '8JX2WO'.
        """
        return as_json(_reservation(session, reservation_id))

    @tool
    async def list_all_airports(self) -> Any:
        """List all airports with their cities."""
        return [{"iata": code, "city": city} for code, city in _AIRPORTS.items()]

    @tool
    async def get_flight_status(self, session: Database, flight_number: str, date: str) -> str:
        """Get the status of a flight on a day.

        Args:
            flight_number: The flight's number.
            date: The day, as YYYY-MM-DD.
        """
        return str(_on_day(session, flight_number, date)["status"])

    @tool
    async def search_direct_flight(self, session: Database, origin: str, destination: str, date: str) -> Any:
        """Search direct flights on a day.

        Args:
            origin: The airport's code, such as 'JFK'.
            destination: The airport's code, such as 'LAX'.
            date: The day, as YYYY-MM-DD.
        """
        return list(_search(session, date, origin, destination))

    @tool
    async def search_onestop_flight(self, session: Database, origin: str, destination: str, date: str) -> Any:
        """Search connections with one stop on a day.

        Args:
            origin: The airport's code, such as 'JFK'.
            destination: The airport's code, such as 'LAX'.
            date: The day, as YYYY-MM-DD.
        """
        pairs = []
        for first in _search(session, date, origin, None):
            arrival = first["scheduled_arrival_time_est"]
            next_date = f"2024-05-{int(date[-2:]) + 1}" if "+1" in arrival else date
            onwards = _search(session, next_date, first["destination"], destination, after=arrival)
            pairs += [[{**first, "date": date}, {**second, "date": next_date}] for second in onwards]
        return pairs

    @tool
    async def book_reservation(  # noqa: PLR0917 - the arguments of a tool
        self,
        session: Database,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["round_trip", "one_way"],
        cabin: Cabin,
        flights: list[FlightInfo],
        passengers: list[Passenger],
        payment_methods: list[Payment],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> Any:
        """Book a reservation, once the user has confirmed it.

        Args:
            user_id: The user's ID.
            origin: The first airport's code.
            destination: The last airport's code.
            flight_type: 'round_trip' or 'one_way'.
            cabin: 'basic_economy', 'economy' or 'business'.
            flights: All flights, each with flight_number and date.
            passengers: All passengers, each with first_name, last_name and dob (YYYY-MM-DD).
            payment_methods: What is paid with what, each with payment_id and amount.
            total_baggages: Number of checked bags.
            nonfree_baggages: How many of them are paid for.
            insurance: 'yes' or 'no'.
        """
        user = _user(session, user_id)
        reservation_id = next((name for name in _RESERVATIONS if name not in session["reservations"]), None)
        if reservation_id is None:
            raise ToolError("Too many reservations")
        booked = [_bookable(session, flight, cabin, len(passengers)) for flight in flights]
        price = sum(flight["price"] for flight, _ in booked) * len(passengers)
        price += (_INSURANCE_PRICE * len(passengers) if insurance == "yes" else 0) + _BAG_PRICE * nonfree_baggages
        _check_payments(user, payment_methods, price)
        for payment in payment_methods:
            method = user["payment_methods"].get(payment.payment_id)
            if method is not None and method["source"] == "gift_card":
                method["amount"] -= payment.amount
            elif method is not None and method["source"] == "certificate":
                del user["payment_methods"][payment.payment_id]
        for _, day in booked:
            day["available_seats"][cabin] -= len(passengers)
        reservation = {
            "reservation_id": reservation_id,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": [flight for flight, _ in booked],
            "passengers": [passenger.model_dump() for passenger in passengers],
            "payment_history": [payment.model_dump() for payment in payment_methods],
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
            "status": None,
        }
        session["reservations"][reservation_id] = reservation
        user["reservations"].append(reservation_id)
        return as_json(reservation)

    @tool
    async def cancel_reservation(self, session: Database, reservation_id: str) -> Any:
        """Cancel a whole reservation, once the user has confirmed it.

        Args:
            reservation_id: The reservation's ID, such as 'ZFA04Y'.
        """
        reservation = _reservation(session, reservation_id)
        history = reservation["payment_history"]
        history += [{**payment, "amount": -payment["amount"]} for payment in list(history)]
        reservation["status"] = "cancelled"
        return as_json(reservation)

    @tool
    async def send_certificate(self, session: Database, user_id: str, amount: int) -> str:
        """Give a user a certificate.

        Args:
            user_id: The user's ID.
            amount: Its value in dollars.
        """
        methods = _user(session, user_id)["payment_methods"]
        certificate = next((name for name in _CERTIFICATES if name not in methods), None)
        if certificate is None:
            raise ToolError("Too many certificates")
        methods[certificate] = {"source": "certificate", "id": certificate, "amount": amount}
        return f"Certificate {certificate} added to user {user_id} with amount {amount}."

    @tool
    async def update_reservation_baggages(
        self, session: Database, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Any:
        """Change the checked bags of a reservation, once the user has confirmed it.

        Args:
            reservation_id: The reservation's ID, such as 'ZFA04Y'.
            total_baggages: The new number of bags.
            nonfree_baggages: How many of them are paid for.
            payment_id: Pays the difference.
        """
        reservation = _reservation(session, reservation_id)
        price = _BAG_PRICE * max(0, nonfree_baggages - reservation["nonfree_baggages"])
        _pay_for_update(session, reservation, payment_id, price)
        reservation["total_baggages"] = total_baggages
        reservation["nonfree_baggages"] = nonfree_baggages
        return as_json(reservation)

    @tool
    async def update_reservation_flights(
        self, session: Database, reservation_id: str, cabin: Cabin, flights: list[FlightInfo], payment_id: str
    ) -> Any:
        """Change the flights or the cabin of a reservation, once the user has confirmed it.

        Args:
            reservation_id: The reservation's ID, such as 'ZFA04Y'.
            cabin: The cabin of the whole reservation.
            flights: All flights of the new reservation, including those that stay.
            payment_id: Pays or receives the difference.
        """
        reservation = _reservation(session, reservation_id)
        size = len(reservation["passengers"])
        changed = [
            _find_booked(reservation, flight, cabin) or _bookable(session, flight, cabin, size)[0] for flight in flights
        ]
        before = sum(flight["price"] for flight in reservation["flights"])
        price = (sum(flight["price"] for flight in changed) - before) * size
        _pay_for_update(session, reservation, payment_id, price)
        reservation["flights"] = changed
        reservation["cabin"] = cabin
        return as_json(reservation)

    @tool
    async def update_reservation_passengers(
        self, session: Database, reservation_id: str, passengers: list[Passenger]
    ) -> Any:
        """Change the passengers of a reservation, once the user has confirmed it. Their number stays the same.

        Args:
            reservation_id: The reservation's ID, such as 'ZFA04Y'.
            passengers: All passengers, each with first_name, last_name and dob (YYYY-MM-DD).
        """
        reservation = _reservation(session, reservation_id)
        if len(passengers) != len(reservation["passengers"]):
            raise ToolError("Number of passengers does not match")
        reservation["passengers"] = [passenger.model_dump() for passenger in passengers]
        return as_json(reservation)


def _user(session: Database, user_id: str) -> Entry:
    user: Entry = find(session["users"], user_id, f"User {user_id}")
    return user


def _reservation(session: Database, reservation_id: str) -> Entry:
    reservation: Entry = find(session["reservations"], reservation_id, f"Reservation {reservation_id}")
    return reservation


def _flight(session: Database, number: str) -> Entry:
    flight: Entry = find(session["flights"], number, f"Flight {number}")
    return flight


def _on_day(session: Database, number: str, date: str) -> Entry:
    days = _flight(session, number)["dates"]
    if date not in days:
        raise ToolError(f"Flight {number} not found on date {date}")
    day: Entry = days[date]
    return day


def _search(
    session: Database, date: str, origin: str, destination: str | None, *, after: str | None = None
) -> Iterator[Entry]:
    for flight in session["flights"].values():
        day = flight["dates"].get(date)
        if day is None or day["status"] != "available" or flight["origin"] != origin:
            continue
        if destination is not None and flight["destination"] != destination:
            continue
        if after is not None and flight["scheduled_departure_time_est"] < after:
            continue
        names = ("flight_number", "origin", "destination")
        times = ("scheduled_departure_time_est", "scheduled_arrival_time_est")
        yield {
            **{name: flight[name] for name in names},
            "status": "available",
            **{name: flight[name] for name in times},
            "available_seats": dict(day["available_seats"]),
            "prices": dict(day["prices"]),
        }


def _bookable(session: Database, wanted: FlightInfo, cabin: Cabin, seats: int) -> tuple[Entry, Entry]:
    """A flight as an entry of a reservation, and its day in the schedule."""
    number = wanted.flight_number
    flight, day = _flight(session, number), _on_day(session, number, wanted.date)
    if day["status"] != "available":
        raise ToolError(f"Flight {number} not available on date {wanted.date}")
    if day["available_seats"][cabin] < seats:
        raise ToolError(f"Not enough seats on flight {number}")
    route = {"flight_number": number, "origin": flight["origin"], "destination": flight["destination"]}
    return {**route, "date": wanted.date, "price": day["prices"][cabin]}, day


def _find_booked(reservation: Entry, wanted: FlightInfo, cabin: Cabin) -> Entry | None:
    """A flight that the reservation already has, at the price that was paid."""
    if cabin != reservation["cabin"]:
        return None
    same = (wanted.flight_number, wanted.date)
    return next(
        (flight for flight in reservation["flights"] if (flight["flight_number"], flight["date"]) == same), None
    )


def _check_payments(user: Entry, payments: Sequence[Payment], price: int) -> None:
    for payment in payments:
        method = find(user["payment_methods"], payment.payment_id, f"Payment method {payment.payment_id}")
        if method["source"] in {"gift_card", "certificate"} and method["amount"] < payment.amount:
            raise ToolError(f"Not enough balance in payment method {payment.payment_id}")
    paid = sum(payment.amount for payment in payments)
    if paid != price:
        raise ToolError(f"Payment amount does not add up, total price is {price}, but paid {paid}")


def _pay_for_update(session: Database, reservation: Entry, payment_id: str, price: int) -> None:
    method = find(_user(session, reservation["user_id"])["payment_methods"], payment_id, "Payment method")
    if method["source"] == "certificate":
        raise ToolError("Certificate cannot be used to update reservation")
    if method["source"] == "gift_card":
        if method["amount"] < price:
            raise ToolError("Gift card balance is not enough")
        method["amount"] -= price
    if price != 0:
        reservation["payment_history"].append({"payment_id": payment_id, "amount": price})
