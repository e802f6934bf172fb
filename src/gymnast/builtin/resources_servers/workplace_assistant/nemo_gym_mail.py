"""Mailbox and directory with NeMo Gym's rules. Names of classes and arguments are in its replies to wrong calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .nemo_gym_frame import Cells, Frame, make_page, show
from .nemo_gym_patterns import compile_pattern
from .nemo_gym_sorting import sort_descending
from .nemo_gym_times import read_time

_INVALID = "Invalid recipient email address."


class CompanyDirectoryTool:
    """Finds addresses."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses

    def find_email_address(self, name: Any = "") -> Any:
        if name == "":
            return "Name not provided."
        search = compile_pattern(name.lower(), python=False)
        return [address for address in self.addresses if search(address)]


class EmailTool:
    """Reads and sends e-mails."""

    def __init__(self, frame: Frame, now: str) -> None:
        self.frame = frame
        self.now = now

    def get_email_information_by_id(self, email_id: Any = None, field: Any = None) -> Any:
        if not email_id:
            return "Email ID not provided."
        if not field:
            return "Field not provided."
        try:
            matches = self.frame.rows_with("email_id", email_id)
            if not matches:
                return "Email not found."
            if field not in matches[0]:
                return f"Field '{field}' not found. Available fields: {', '.join(self.frame.columns)}"
            return {field: matches[0][field]}
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error retrieving email information: {error}"

    def search_emails(
        self, query: Any = "", date_min: Any = None, date_max: Any = None, page: Any = 1, page_size: Any = 5
    ) -> Any:
        try:
            return self._search(query.lower().split(), date_min, date_max, page, page_size)
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error searching emails: {error}"

    def _search(self, words: list[str], date_min: Any, date_max: Any, page: Any, page_size: Any) -> Any:
        matches: Sequence[Cells] = [row for row in self.frame.rows if all(word in _searchable(row) for word in words)]
        matches = sort_descending(matches, key=lambda row: row["sent_datetime"])
        if date_min:
            matches = [row for row in matches if read_time(row["sent_datetime"]).date() >= read_time(date_min).date()]
        if date_max:
            matches = [row for row in matches if read_time(row["sent_datetime"]).date() <= read_time(date_max).date()]
        return make_page("emails", matches, page, page_size) or "No emails found."

    def send_email(self, recipient: Any = None, subject: Any = None, body: Any = None) -> Any:
        if not recipient or not subject or not body:
            return "Recipient, subject, or body not provided."
        if "@" not in recipient or "." not in recipient:
            return _INVALID
        try:
            cells = {
                "email_id": str(int(self.frame.highest("email_id")) + 1) if self.frame.rows else "1",
                "inbox/outbox": "outbox",
                "sender/recipient": recipient.lower(),
                "subject": subject,
                "sent_datetime": self.now,
                "body": body,
            }
            self.frame.append(cells, renumber=True)
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error sending email: {error}"
        return "Email sent successfully."

    def delete_email(self, email_id: Any = None) -> Any:
        if not email_id:
            return "Email ID not provided."
        try:
            if not self.frame.has("email_id", email_id):
                return "Email not found."
            self.frame.delete("email_id", email_id)
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error deleting email: {error}"
        return "Email deleted successfully."

    def forward_email(self, email_id: Any = None, recipient: Any = None) -> Any:
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if "@" not in recipient or "." not in recipient:
            return _INVALID
        try:
            if not self.frame.has("email_id", email_id):
                return "Email not found."
            address = recipient.lower()
            email = self.frame.rows_with("email_id", email_id)[0]
            reply = self.send_email(address, f"FW: {show(email['subject'])}", email["body"])
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error forwarding email: {error}"
        return reply if "Error" in reply or "Invalid" in reply else "Email forwarded successfully."

    def reply_email(self, email_id: Any = None, body: Any = None) -> Any:
        if not email_id or not body:
            return "Email ID or body not provided."
        try:
            if not self.frame.has("email_id", email_id):
                return "Email not found."
            email = self.frame.rows_with("email_id", email_id)[0]
            reply = self.send_email(email["sender/recipient"], f"RE: {show(email['subject'])}", body)
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error replying to email: {error}"
        return reply if "Error" in reply or "Invalid" in reply else "Email replied successfully."


def _searchable(row: Cells) -> str:
    return f"{show(row['subject'])} {show(row['body'])} {show(row['sender/recipient'])}".lower()
