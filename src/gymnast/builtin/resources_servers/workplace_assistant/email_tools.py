"""The mailbox and the company's directory."""

from __future__ import annotations

from typing import Any, Final

from gymnast.kit import ToolError, tool

from .checks import a_day_or_moment, an_address, any_text, or_empty
from .office import Office, has_words, make_page, read_field, require, validate, within
from .tables import email_text

_CHECKS: Final = {
    "recipient": an_address,
    "subject": any_text,
    "body": any_text,
    "date_min": or_empty(a_day_or_moment),
    "date_max": or_empty(a_day_or_moment),
}


class EmailTools:
    """Tools over the e-mails."""

    @tool
    async def company_directory_find_email_address(self, session: Office, name: str = "") -> list[str]:
        """Finds the e-mail addresses of people in the company.

        Args:
            name: A first name, a last name or both, e.g. 'Ada' or 'Ada Mori'.
        """
        if not name.strip():
            raise ToolError("Give a name, e.g. 'Ada' or 'Ada Mori'.")
        return [address for address in session.office_data.tables.addresses if has_words(name, address.split("@")[0])]

    @tool
    async def email_get_email_information_by_id(self, session: Office, email_id: str, field: str) -> dict[str, str]:
        """Reads one field of an e-mail.

        Args:
            email_id: The id, 8 digits.
            field: 'email_id', 'inbox/outbox', 'sender/recipient', 'subject', 'sent_datetime' or 'body'.
        """
        return read_field(require(session.emails, email_id, "e-mail"), field)

    @tool
    async def email_search_emails(
        self,
        session: Office,
        query: str = "",
        date_min: str = "",
        date_max: str = "",
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any]:
        """Searches e-mails, newest first.

        Args:
            query: Words that are all in the sender or recipient, the subject or the body.
            date_min: The earliest day, YYYY-MM-DD.
            date_max: The latest day, YYYY-MM-DD.
            page: Which page of the results, from 1.
            page_size: E-mails on a page.
        """
        validate(session, _CHECKS, {"date_min": date_min, "date_max": date_max})
        words, texts = query.lower().split(), session.office_data.email_texts
        matches = [
            row
            for row in session.emails
            if within(row["sent_datetime"], date_min, date_max)
            and all(word in (texts.get(row["email_id"]) or email_text(row)) for word in words)
        ]
        matches.sort(key=lambda row: row["sent_datetime"], reverse=True)
        return make_page("emails", matches, page, page_size)

    @tool
    async def email_send_email(self, session: Office, recipient: str, subject: str, body: str) -> str:
        """Sends an e-mail.

        Args:
            recipient: The address it goes to.
            subject: The subject line.
            body: The text.
        """
        return _send(session, recipient, subject, body)

    @tool
    async def email_delete_email(self, session: Office, email_id: str) -> str:
        """Deletes an e-mail.

        Args:
            email_id: The id, 8 digits.
        """
        session.emails.delete(require(session.emails, email_id, "e-mail"))
        return f"E-mail {email_id} is deleted."

    @tool
    async def email_forward_email(self, session: Office, email_id: str, recipient: str) -> str:
        """Forwards an e-mail.

        Args:
            email_id: The id, 8 digits.
            recipient: The address it goes to.
        """
        row = require(session.emails, email_id, "e-mail")
        return _send(session, recipient, f"Fwd: {row['subject']}", row["body"])

    @tool
    async def email_reply_email(self, session: Office, email_id: str, body: str) -> str:
        """Replies to an e-mail.

        Args:
            email_id: The id, 8 digits, of the e-mail to reply to.
            body: The text of the reply.
        """
        row = require(session.emails, email_id, "e-mail")
        return _send(session, row["sender/recipient"], f"Re: {row['subject']}", body)


def _send(office: Office, recipient: str, subject: str, body: str) -> str:
    values = validate(office, _CHECKS, {"recipient": recipient, "subject": subject, "body": body})
    email_id = office.emails.add(
        {
            "inbox/outbox": "outbox",
            "sender/recipient": values["recipient"],
            "subject": subject,
            "sent_datetime": office.office_data.now,
            "body": body,
        }
    )
    return f"The e-mail to {recipient} is sent. Its id is {email_id}."
