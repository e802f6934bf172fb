"""The project board."""

from __future__ import annotations

from typing import Final

from gymnast.kit import ToolError, tool

from .checks import a_colleague, a_day, one_of, or_empty, some_text
from .office import Office, change, has_words, read_field, require, validate
from .tables import Row

_FIELDS: Final = {
    "task_name": some_text,
    "assigned_to_email": a_colleague,
    "list_name": one_of(lambda office_data: office_data.lists),
    "due_date": a_day,
    "board": one_of(lambda office_data: office_data.boards),
}


class ProjectTools:
    """Tools over the tasks."""

    @tool
    async def project_management_get_task_information_by_id(
        self, session: Office, task_id: str, field: str
    ) -> dict[str, str]:
        """Reads one field of a task.

        Args:
            task_id: The id, 8 digits.
            field: 'task_id', 'task_name', 'assigned_to_email', 'list_name', 'due_date' or 'board'.
        """
        return read_field(require(session.tasks, task_id, "task"), field)

    @tool
    async def project_management_search_tasks(
        self,
        session: Office,
        task_name: str = "",
        assigned_to_email: str = "",
        list_name: str = "",
        due_date: str = "",
        board: str = "",
    ) -> list[Row]:
        """Lists the tasks that match everything given. Give at least one argument.

        Args:
            task_name: Words that are all in the task's name.
            assigned_to_email: The address, or a part of it, of who has the task.
            list_name: 'Backlog', 'In Progress', 'In Review' or 'Completed'.
            due_date: The day it is due, YYYY-MM-DD.
            board: 'Back end', 'Front end' or 'Design'.
        """
        exact = {"list_name": list_name, "due_date": due_date, "board": board}
        options = {name: text for name, text in exact.items() if text}
        if not (task_name or assigned_to_email or options):
            raise ToolError(f"Give at least one of {', '.join(_FIELDS)}.")
        validate(session, {name: or_empty(check) for name, check in _FIELDS.items()}, options)
        return [
            row
            for row in session.tasks
            if has_words(task_name, row["task_name"])
            and has_words(assigned_to_email, row["assigned_to_email"])
            and all(row[name] == text for name, text in options.items())
        ]

    @tool
    async def project_management_create_task(
        self, session: Office, task_name: str, assigned_to_email: str, list_name: str, due_date: str, board: str
    ) -> str:
        """Creates a task.

        Args:
            task_name: What is to be done.
            assigned_to_email: The address of who is to do it.
            list_name: 'Backlog', 'In Progress', 'In Review' or 'Completed'.
            due_date: The day it is due, YYYY-MM-DD.
            board: 'Back end', 'Front end' or 'Design'.
        """
        values = {
            "task_name": task_name,
            "assigned_to_email": assigned_to_email,
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        return f"The task is created. Its id is {session.tasks.add(validate(session, _FIELDS, values))}."

    @tool
    async def project_management_delete_task(self, session: Office, task_id: str) -> str:
        """Deletes a task.

        Args:
            task_id: The id, 8 digits.
        """
        session.tasks.delete(require(session.tasks, task_id, "task"))
        return f"Task {task_id} is deleted."

    @tool
    async def project_management_update_task(self, session: Office, task_id: str, field: str, new_value: str) -> str:
        """Changes one field of a task.

        Args:
            task_id: The id, 8 digits.
            field: 'task_name', 'assigned_to_email', 'list_name', 'due_date' or 'board'.
            new_value: What the field is to hold.
        """
        change(session, session.tasks, require(session.tasks, task_id, "task"), _FIELDS, field, new_value)
        return f"{field} of task {task_id} is now '{new_value}'."
