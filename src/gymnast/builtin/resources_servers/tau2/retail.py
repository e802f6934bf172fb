"""An online shop, as in τ²-bench's retail domain: users, products and orders, and the tools of its service desk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gymnast.kit import ToolError, tool

from .service import Database, Service, as_json, find

Entry = dict[str, Any]
_REASONS = ("no longer needed", "ordered by mistake")


class Retail(Service):
    """The shop's service desk."""

    example_database: ClassVar[Path] = Path(__file__).parent / "data" / "retail.json"

    @tool
    async def find_user_id_by_email(self, session: Database, email: str) -> str:
        """Find a user's ID by e-mail address.

        Args:
            email: The address, such as 'ann@example.com'.
        """
        for user_id, user in session["users"].items():
            if user["email"].lower() == email.lower():
                return str(user_id)
        raise ToolError("User not found")

    @tool
    async def find_user_id_by_name_zip(self, session: Database, first_name: str, last_name: str, zip: str) -> str:  # noqa: A002
        """Find a user's ID by name and zip code, for users who do not know their e-mail address.

        Args:
            first_name: The first name.
            last_name: The last name.
            zip: The zip code, such as '12345'.
        """
        wanted = (first_name.lower(), last_name.lower(), zip)
        for user_id, user in session["users"].items():
            name = user["name"]
            if (name["first_name"].lower(), name["last_name"].lower(), user["address"]["zip"]) == wanted:
                return str(user_id)
        raise ToolError("User not found")

    @tool
    async def get_user_details(self, session: Database, user_id: str) -> Any:
        """Get a user: address, payment methods and orders.

        Args:
            user_id: The user's ID.
        """
        return as_json(find(session["users"], user_id, "User"))

    @tool
    async def get_order_details(self, session: Database, order_id: str) -> Any:
        """Get an order: its status, items and payments.

        Args:
            order_id: The order's ID, which starts with '#', such as '#W0000000'.
        """
        return as_json(find(session["orders"], order_id, "Order"))

    @tool
    async def get_product_details(self, session: Database, product_id: str) -> Any:
        """Get a product with all its variants, their prices and whether they are available.

        Args:
            product_id: The product's ID, which is not the ID of an item.
        """
        return as_json(find(session["products"], product_id, "Product"))

    @tool
    async def get_item_details(self, session: Database, item_id: str) -> Any:
        """Get a variant of a product.

        Args:
            item_id: The item's ID, which is not the ID of a product.
        """
        for product in session["products"].values():
            if item_id in product["variants"]:
                return as_json(product["variants"][item_id])
        raise ToolError("Item not found")

    @tool
    async def list_all_product_types(self, session: Database) -> str:
        """List the names and IDs of all products."""
        return json.dumps(
            {entry["name"]: entry["product_id"] for entry in session["products"].values()}, sort_keys=True
        )

    @tool
    async def cancel_pending_order(self, session: Database, order_id: str, reason: str) -> Any:
        """Cancel a pending order and refund it, once the user has confirmed it.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            reason: 'no longer needed' or 'ordered by mistake'.
        """
        order = find(session["orders"], order_id, "Order")
        if order["status"] != "pending":
            raise ToolError("Non-pending order cannot be cancelled")
        if reason not in _REASONS:
            raise ToolError("Invalid reason")
        refunds = []
        for payment in order["payment_history"]:
            method = _payment_method(session, order, payment["payment_method_id"])
            refunds.append({**payment, "transaction_type": "refund"})
            _pay(method, -payment["amount"])
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        order["payment_history"].extend(refunds)
        return as_json(order)

    @tool
    async def exchange_delivered_order_items(
        self, session: Database, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Exchange items of a delivered order for others of the same products, once the user has confirmed it.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            item_ids: The items to exchange; an item may occur more than once.
            new_item_ids: The new items, in the order of the old ones.
            payment_method_id: Pays or receives the difference in price.
        """
        order = find(session["orders"], order_id, "Order")
        if order["status"] != "delivered":
            raise ToolError("Non-delivered order cannot be exchanged")
        swaps = list(_swaps(session, order, item_ids, new_item_ids))
        difference = round(sum(variant["price"] - item["price"] for item, variant in swaps), 2)
        _check_balance(_payment_method(session, order, payment_method_id), difference)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = difference
        return as_json(order)

    @tool
    async def return_delivered_order_items(
        self, session: Database, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Return items of a delivered order, once the user has confirmed it.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            item_ids: The items to return; an item may occur more than once.
            payment_method_id: Receives the refund: the original payment method, or a gift card.
        """
        order = find(session["orders"], order_id, "Order")
        if order["status"] != "delivered":
            raise ToolError("Non-delivered order cannot be returned")
        method = _payment_method(session, order, payment_method_id)
        if not _is_gift_card(method) and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise ToolError("Payment method should be the original payment method")
        _check_items(order, item_ids)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return as_json(order)

    @tool
    async def modify_pending_order_address(
        self,
        session: Database,
        order_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Any:
        """Change the shipping address of a pending order, once the user has confirmed it.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            address1: Street and number.
            address2: Second line of the address, or ''.
            city: The city.
            state: The state, such as 'CA'.
            country: The country, such as 'USA'.
            zip: The zip code.
        """
        order = _find_pending_order(session, order_id)
        order["address"] = _address(address1, address2, city, state, country, zip)
        return as_json(order)

    @tool
    async def modify_pending_order_items(
        self, session: Database, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Replace items of a pending order by others of the same products, once the user has confirmed it. Only once.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            item_ids: The items to replace; an item may occur more than once.
            new_item_ids: The new items, in the order of the old ones.
            payment_method_id: Pays or receives the difference in price.
        """
        order = find(session["orders"], order_id, "Order")
        if order["status"] != "pending":
            raise ToolError("Non-pending order cannot be modified")
        swaps = list(_swaps(session, order, item_ids, new_item_ids, different=True))
        difference = sum(variant["price"] - item["price"] for item, variant in swaps)
        method = _payment_method(session, order, payment_method_id)
        _check_balance(method, difference)
        order["payment_history"].append(_payment("payment" if difference > 0 else "refund", abs(difference), method))
        _pay(method, difference)
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next((item for item in order["items"] if item["item_id"] == old), None)
            if item is None:
                raise ToolError(f"Item {old} not found")
            # As in τ²-bench, whose references contain it: all items get the price and options of the last new one.
            item.update(item_id=new, price=swaps[-1][1]["price"], options=dict(swaps[-1][1]["options"]))
        order["status"] = "pending (item modified)"
        return as_json(order)

    @tool
    async def modify_pending_order_payment(self, session: Database, order_id: str, payment_method_id: str) -> Any:
        """Change the payment method of a pending order, once the user has confirmed it.

        Args:
            order_id: The order's ID, such as '#W0000000'.
            payment_method_id: The new payment method.
        """
        order = _find_pending_order(session, order_id)
        method = _payment_method(session, order, payment_method_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise ToolError("There should be exactly one payment for a pending order")
        paid = history[0]
        if paid["payment_method_id"] == payment_method_id:
            raise ToolError("The new payment method should be different from the current one")
        _check_balance(method, paid["amount"])
        former = _payment_method(session, order, paid["payment_method_id"])
        history += [_payment("payment", paid["amount"], method), _payment("refund", paid["amount"], former)]
        _pay(method, paid["amount"])
        _pay(former, -paid["amount"])
        return as_json(order)

    @tool
    async def modify_user_address(
        self,
        session: Database,
        user_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Any:
        """Change a user's default address, once the user has confirmed it.

        Args:
            user_id: The user's ID.
            address1: Street and number.
            address2: Second line of the address, or ''.
            city: The city.
            state: The state, such as 'CA'.
            country: The country, such as 'USA'.
            zip: The zip code.
        """
        user = find(session["users"], user_id, "User")
        user["address"] = _address(address1, address2, city, state, country, zip)
        return as_json(user)


def _find_pending_order(session: Database, order_id: str) -> Entry:
    order: Entry = find(session["orders"], order_id, "Order")
    if "pending" not in order["status"]:
        raise ToolError("Non-pending order cannot be modified")
    return order


def _swaps(
    session: Database, order: Entry, old: Sequence[str], new: Sequence[str], *, different: bool = False
) -> Iterator[tuple[Entry, Entry]]:
    """Each item with the variant that replaces it."""
    _check_items(order, old)
    if len(old) != len(new):
        raise ToolError("The number of items to be exchanged should match")
    for item_id, new_id in zip(old, new, strict=True):
        if different and item_id == new_id:
            raise ToolError("The new item id should be different from the old item id")
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        product = find(session["products"], item["product_id"], "Product")
        variant: Entry = find(product["variants"], new_id, "Variant")
        if not variant["available"]:
            raise ToolError(f"New item {new_id} not found or available")
        yield item, variant


def _check_items(order: Entry, wanted: Sequence[str]) -> None:
    owned = [item["item_id"] for item in order["items"]]
    for item_id in wanted:
        if wanted.count(item_id) > owned.count(item_id):
            raise ToolError(f"{item_id} not found")


def _payment_method(session: Database, order: Entry, method_id: str) -> Entry:
    user = find(session["users"], order["user_id"], "User")
    method: Entry = find(user["payment_methods"], method_id, "Payment method")
    return method


def _is_gift_card(method: Entry) -> bool:
    return bool(method["source"] == "gift_card")


def _check_balance(method: Entry, amount: float) -> None:
    if _is_gift_card(method) and method["balance"] < amount:
        raise ToolError("Insufficient gift card balance")


def _pay(method: Entry, amount: float) -> None:
    """Charge a gift card; a negative amount is a refund. Other methods have no balance."""
    if _is_gift_card(method):
        method["balance"] = round(method["balance"] - amount, 2)


def _payment(kind: str, amount: float, method: Entry) -> Entry:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method["id"]}


def _address(address1: str, address2: str, city: str, state: str, country: str, zip_code: str) -> Entry:
    lines = {"address1": address1, "address2": address2, "city": city}
    return {**lines, "country": country, "state": state, "zip": zip_code}
