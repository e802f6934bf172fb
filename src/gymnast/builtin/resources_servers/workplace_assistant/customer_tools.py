"""The customers (CRM)."""

from __future__ import annotations

from typing import Any, Final

from gymnast.kit import tool

from .checks import a_colleague, a_day, a_day_or_moment, an_address, any_text, one_of, or_empty, some_text
from .office import Office, change, has_words, make_page, require, validate, within

_STATUS: Final = one_of(lambda office_data: office_data.statuses)
_PRODUCT: Final = or_empty(one_of(lambda office_data: office_data.products))
_FIELDS: Final = {
    "customer_name": some_text,
    "assigned_to_email": a_colleague,
    "customer_email": or_empty(an_address),
    "customer_phone": any_text,
    "last_contact_date": or_empty(a_day),
    "product_interest": _PRODUCT,
    "status": _STATUS,
    "notes": any_text,
    "follow_up_by": or_empty(a_day),
}
_BOUND: Final = or_empty(a_day_or_moment)
_SEARCH: Final = {
    "product_interest": _PRODUCT,
    "status": or_empty(_STATUS),
    "last_contact_date_min": _BOUND,
    "last_contact_date_max": _BOUND,
    "follow_up_by_min": _BOUND,
    "follow_up_by_max": _BOUND,
}


class CustomerTools:
    """Tools over the customers."""

    @tool
    async def customer_relationship_manager_search_customers(  # noqa: PLR0917 - the arguments are the tool's
        self,
        session: Office,
        customer_name: str = "",
        customer_email: str = "",
        product_interest: str = "",
        status: str = "",
        assigned_to_email: str = "",
        last_contact_date_min: str = "",
        last_contact_date_max: str = "",
        follow_up_by_min: str = "",
        follow_up_by_max: str = "",
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Searches the customers that match everything given.

        Args:
            customer_name: Words that are all in the customer's name.
            customer_email: The customer's address, or a part of it.
            product_interest: 'Software', 'Hardware', 'Services', 'Consulting' or 'Training'.
            status: 'Lead', 'Qualified', 'Proposal', 'Won' or 'Lost'.
            assigned_to_email: The address, or a part of it, of the colleague in charge.
            last_contact_date_min: The earliest day of the last contact, YYYY-MM-DD.
            last_contact_date_max: The latest day of the last contact, YYYY-MM-DD.
            follow_up_by_min: The earliest day for following up, YYYY-MM-DD.
            follow_up_by_max: The latest day for following up, YYYY-MM-DD.
            page: Which page of the results, from 1.
            page_size: Customers on a page.
        """
        bounds = {
            "last_contact_date_min": last_contact_date_min,
            "last_contact_date_max": last_contact_date_max,
            "follow_up_by_min": follow_up_by_min,
            "follow_up_by_max": follow_up_by_max,
        }
        validate(session, _SEARCH, {"product_interest": product_interest, "status": status, **bounds})
        parts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "assigned_to_email": assigned_to_email,
        }
        exact = {"product_interest": product_interest, "status": status}
        matches = [
            row
            for row in session.customers
            if all(has_words(text, row[name]) for name, text in parts.items() if text)
            and all(row[name] == text for name, text in exact.items() if text)
            and within(row["last_contact_date"], last_contact_date_min, last_contact_date_max)
            and within(row["follow_up_by"], follow_up_by_min, follow_up_by_max)
        ]
        return make_page("customers", matches, page, page_size)

    @tool
    async def customer_relationship_manager_update_customer(
        self, session: Office, customer_id: str, field: str, new_value: str
    ) -> str:
        """Changes one field of a customer.

        Args:
            customer_id: The id, 8 digits.
            field: 'customer_name', 'assigned_to_email', 'customer_email', 'customer_phone', 'last_contact_date', 'product_interest', 'status', 'notes' or 'follow_up_by'.
            new_value: What the field is to hold.
        """  # noqa: E501 - an argument's description is one line
        row = require(session.customers, customer_id, "customer")
        change(session, session.customers, row, _FIELDS, field, new_value)
        return f"{field} of customer {customer_id} is now '{new_value}'."

    @tool
    async def customer_relationship_manager_add_customer(  # noqa: PLR0917 - the arguments are the tool's
        self,
        session: Office,
        customer_name: str,
        assigned_to_email: str,
        status: str,
        customer_email: str = "",
        customer_phone: str = "",
        last_contact_date: str = "",
        product_interest: str = "",
        notes: str = "",
        follow_up_by: str = "",
    ) -> str:
        """Adds a customer.

        Args:
            customer_name: The customer's name.
            assigned_to_email: The address of the colleague in charge.
            status: 'Lead', 'Qualified', 'Proposal', 'Won' or 'Lost'.
            customer_email: The customer's address.
            customer_phone: The customer's phone number.
            last_contact_date: The day of the last contact, YYYY-MM-DD.
            product_interest: 'Software', 'Hardware', 'Services', 'Consulting' or 'Training'.
            notes: Anything to remember.
            follow_up_by: The day by which to follow up, YYYY-MM-DD.
        """
        values = {
            "assigned_to_email": assigned_to_email,
            "customer_name": customer_name,
            "customer_email": customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        return f"The customer is added. The id is {session.customers.add(validate(session, _FIELDS, values))}."

    @tool
    async def customer_relationship_manager_delete_customer(self, session: Office, customer_id: str) -> str:
        """Deletes a customer.

        Args:
            customer_id: The id, 8 digits.
        """
        session.customers.delete(require(session.customers, customer_id, "customer"))
        return f"Customer {customer_id} is deleted."
