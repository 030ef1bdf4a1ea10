"""All views of this deployment. Adding a view is one file beside this one, with its `VIEW`, and one line here."""

from importlib import import_module

from views.view import View

_MODULES = (
    "views.system_usage",
    "views.revenue_by_merchant",
    "views.account_activity",
)

ALL_VIEWS: tuple[View, ...] = tuple(import_module(module).VIEW for module in _MODULES)


def view_named(name: str) -> View | None:
    return next((view for view in ALL_VIEWS if view.name == name), None)
