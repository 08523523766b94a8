"""Great Expectations' expectations, each of which describes itself once.

As they come, they build and validate their configuration anew whenever one of its values is asked for: some sixty times
for each expectation that is evaluated, which was a third of the time that a small recording's validation took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from great_expectations.compatibility.pydantic import PrivateAttr
from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_table_columns_to_match_set import ExpectTableColumnsToMatchSet
from great_expectations.expectations.expectation import Expectation

if TYPE_CHECKING:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration


class _Described(Expectation):
    """An expectation that keeps its configuration."""

    _said: ExpectationConfiguration | None = PrivateAttr(None)

    @property
    def configuration(self) -> ExpectationConfiguration:
        """What it expects, as Great Expectations asks for it."""
        if self._said is None:
            self._said = super().configuration
        return self._said


class ExpectNoBreaches(_Described, ExpectColumnMaxToBeBetween):
    """The number of rows that break a rule, which is a column's only value, is not above what is allowed."""


class ExpectKnownValues(_Described, ExpectColumnValuesToBeInSet):
    """A column's values are of a closed list."""


class ExpectNoNulls(_Described, ExpectColumnValuesToNotBeNull):
    """A column has no nulls."""


class ExpectColumns(_Described, ExpectTableColumnsToMatchSet):
    """A table has these columns and no others."""
