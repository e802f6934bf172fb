"""The customers with NeMo Gym's rules. Names of classes and arguments are in its replies to wrong calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .nemo_gym_frame import Cells, Frame, filter_range, make_page
from .tables import PRODUCTS

_STATUSES: Final = ("Qualified", "Won", "Lost", "Lead", "Proposal")
_FIELDS: Final = (
    *("customer_name", "assigned_to_email", "customer_email", "customer_phone", "last_contact_date"),
    *("product_interest", "status", "notes", "follow_up_by"),
)


class CustomerRelationshipManagerTool:
    """Reads and changes customers."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def search_customers(  # noqa: PLR0917 - the arguments are the tool's
        self,
        customer_name: Any = None,
        customer_email: Any = None,
        product_interest: Any = None,
        status: Any = None,
        assigned_to_email: Any = None,
        last_contact_date_min: Any = None,
        last_contact_date_max: Any = None,
        follow_up_by_min: Any = None,
        follow_up_by_max: Any = None,
        page: Any = 1,
        page_size: Any = 5,
    ) -> Any:
        parts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        bounds = (last_contact_date_min, last_contact_date_max, follow_up_by_min, follow_up_by_max)
        if not any((*parts.values(), *bounds)):
            return "No search parameters provided. Please provide at least one parameter."
        rows: Sequence[Cells] = self.frame.rows
        for column, part in parts.items():
            rows = self.frame.filter(rows, column, part)
        rows = self._filter_range(rows, "last_contact_date", last_contact_date_min, last_contact_date_max)
        rows = self._filter_range(rows, "follow_up_by", follow_up_by_min, follow_up_by_max)
        return make_page("customers", rows, page, page_size) or "No customers found."

    def _filter_range(self, rows: Any, column: str, low: Any, high: Any) -> Any:
        mixed = column in self.frame.mixed
        rows = filter_range(rows, column, low=low, mixed=mixed) if low else rows
        return filter_range(rows, column, high=high, mixed=mixed) if high else rows

    def update_customer(self, customer_id: Any = None, field: Any = None, new_value: Any = None) -> Any:
        if not customer_id or not field or not new_value:
            return "Customer ID, field, or new value not provided."
        if field == "status" and new_value not in _STATUSES:
            return f"Status not valid. Please choose from: {', '.join(map(repr, _STATUSES))}"
        if field == "product_interest" and new_value not in PRODUCTS:
            return f"Product interest not valid. Please choose from: {', '.join(map(repr, PRODUCTS))}"
        value = new_value.lower() if field in ("customer_email", "assigned_to_email") else new_value
        if not self.frame.has("customer_id", customer_id):
            return "Customer not found."
        if field not in dict.fromkeys(self.frame.columns):
            return f"Field not valid. Please choose from: {', '.join(map(repr, _FIELDS))}"
        self.frame.replace("customer_id", customer_id, field, value)
        return "Customer updated successfully."

    def add_customer(  # noqa: PLR0917 - the arguments are the tool's
        self,
        customer_name: Any = None,
        assigned_to_email: Any = None,
        status: Any = None,
        customer_email: Any = None,
        customer_phone: Any = None,
        last_contact_date: Any = None,
        product_interest: Any = None,
        notes: Any = "",
        follow_up_by: Any = None,
    ) -> Any:
        if not all((customer_name, assigned_to_email, status)):
            return "Please provide all required fields: customer_name, assigned_to_email, status."
        assignee = assigned_to_email.lower()
        address = customer_email.lower() if customer_email else customer_email
        customer_id = str(int(self.frame.highest("customer_id")) + 1).zfill(8)
        cells = {
            "customer_id": customer_id,
            "customer_name": customer_name,
            "customer_email": address,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assignee,
            "notes": notes,
            "follow_up_by": follow_up_by,
        }
        self.frame.append(cells, renumber=True)
        return customer_id

    def delete_customer(self, customer_id: Any = None) -> Any:
        if not customer_id:
            return "Customer ID not provided."
        if not self.frame.has("customer_id", customer_id):
            return "Customer not found."
        self.frame.delete("customer_id", customer_id)
        return "Customer deleted successfully."
