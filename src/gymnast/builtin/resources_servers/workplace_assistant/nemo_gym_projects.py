"""The project board with NeMo Gym's rules. Names of classes and arguments are in its replies to wrong calls."""

from __future__ import annotations

import re
from typing import Any, Final

from .nemo_gym_frame import Frame
from .tables import BOARDS, LISTS

_BAD_BOARD: Final = f"Board not valid. Please choose from: {', '.join(map(repr, BOARDS))}."
_BAD_LIST: Final = f"List not valid. Please choose from: {', '.join(map(repr, LISTS))}."
_BAD_ASSIGNEE: Final = "Assignee email not valid. Please choose from the list of team members."
_NOT_FOUND: Final = "Task not found."
_ADDRESS: Final = re.compile(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$")


class ProjectManagementTool:
    """Reads and changes tasks."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def get_task_information_by_id(self, task_id: Any = None, field: Any = None) -> Any:
        if not task_id:
            return "Task ID not provided."
        if not field:
            return "Field not provided."
        matches = self.frame.rows_with("task_id", task_id)
        if not matches:
            return _NOT_FOUND
        return {field: matches[0][field]} if field in matches[0] else "Field not found."

    def search_tasks(
        self,
        task_name: Any = None,
        assigned_to_email: Any = None,
        list_name: Any = None,
        due_date: Any = None,
        board: Any = None,
    ) -> Any:
        if not any((task_name, assigned_to_email, list_name, due_date, board)):
            return "No search parameters provided."
        if assigned_to_email and not _ADDRESS.match(assigned_to_email):
            return "Invalid email format for assigned_to_email."
        rows = self.frame.filter(self.frame.rows, "task_name", task_name)
        if assigned_to_email:
            rows = [row for row in rows if _lower(row["assigned_to_email"]) == assigned_to_email.lower()]
        rows = self.frame.filter(rows, "list_name", list_name)
        rows = self.frame.filter(rows, "due_date", due_date)
        return self.frame.filter(rows, "board", board)

    def create_task(
        self,
        task_name: Any = None,
        assigned_to_email: Any = None,
        list_name: Any = None,
        due_date: Any = None,
        board: Any = None,
    ) -> Any:
        if not all((task_name, assigned_to_email, list_name, due_date, board)):
            return "Missing task details."
        assignee = assigned_to_email.lower()
        if not self._is_assignee(assignee):
            return _BAD_ASSIGNEE
        if list_name not in LISTS:
            return _BAD_LIST
        if board not in BOARDS:
            return _BAD_BOARD
        task_id = str(int(self.frame.highest("task_id")) + 1).zfill(8)
        cells = {
            "task_id": task_id,
            "task_name": task_name,
            "assigned_to_email": assignee,
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        self.frame.append(cells, renumber=True)
        return task_id

    def delete_task(self, task_id: Any = None) -> Any:
        if not task_id:
            return "Task ID not provided."
        if not self.frame.has("task_id", task_id):
            return _NOT_FOUND
        self.frame.delete("task_id", task_id)
        return "Task deleted successfully."

    def update_task(self, task_id: Any = None, field: Any = None, new_value: Any = None) -> Any:
        if not task_id or not field or not new_value:
            return "Task ID, field, or new value not provided."
        value = new_value.lower() if field == "assigned_to_email" else new_value
        problem = self._problem(field, value)
        if problem is not None:
            return problem
        if not self.frame.has("task_id", task_id):
            return _NOT_FOUND
        if field not in dict.fromkeys(self.frame.columns):
            return "Field not valid."
        self.frame.replace("task_id", task_id, field, value)
        return "Task updated successfully."

    def _problem(self, field: Any, value: Any) -> str | None:
        if field == "board" and value not in BOARDS:
            return _BAD_BOARD
        if field == "list_name" and value not in LISTS:
            return _BAD_LIST
        return _BAD_ASSIGNEE if field == "assigned_to_email" and not self._is_assignee(value) else None

    def _is_assignee(self, address: str) -> bool:
        return any(_lower(row["assigned_to_email"]) == address for row in self.frame.rows)


def _lower(cell: Any) -> Any:
    return cell.lower() if isinstance(cell, str) else None
