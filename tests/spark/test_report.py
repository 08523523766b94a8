from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import recorded_tables as recorded

from pipelines.stages import report, report_text
from pipelines.warehouse.small import Small

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.warehouse.table_files import TableFiles

pytestmark = pytest.mark.spark


class Shelf:
    """Tables as a warehouse hands them out, without Delta."""

    path = "/data/ware house"

    def __init__(self, spark: SparkSession, frames: dict[str, DataFrame], *, are_small: bool) -> None:
        self.spark, self.frames, self.are_small = spark, frames, are_small

    def looked_at(self, table_name: str, recording_id: str) -> DataFrame:  # noqa: ARG002
        return self.frames[table_name]

    read = looked_at

    def arrow(self, table_name: str, recording_id: str, columns: Sequence[str] = ()) -> pa.Table:  # noqa: ARG002
        rows = self.frames[table_name].toArrow()
        return rows.select(columns) if columns else rows

    def small(self, table_name: str, recording_id: str) -> Small | None:
        return Small(self.spark, self.arrow(table_name, recording_id)) if self.are_small else None

    def small_rows(self, table_name: str, recording_id: str) -> pa.Table | None:
        return self.arrow(table_name, recording_id) if self.are_small else None

    read_before = small_rows

    def whole(self, table_name: str, recording_id: str, most: int, columns: Sequence[str] = ()) -> pa.Table | None:  # noqa: ARG002
        return self.arrow(table_name, recording_id, columns) if self.are_small else None

    def files_within(self, table_names: Iterable[str], recording_id: str, most: int) -> dict[str, TableFiles]:  # noqa: ARG002
        return {}

    def is_empty(self, table_name: str, recording_id: str) -> bool:
        return not len(self.arrow(table_name, recording_id))

    def row_counts(self, recording_id: str) -> dict[str, int]:  # noqa: ARG002
        return {name: frame.count() for name, frame in self.frames.items()}

    def table_path(self, table_name: str) -> str:
        return f"{self.path}/{table_name}"


def report_of(
    spark: SparkSession, rows: dict[str, list[dict[str, Any]]], run_id: str | None = "run", *, are_small: bool = True
) -> report.Report:
    for name in ("files", "runs", "expectation_results"):
        rows.setdefault(name, [])
    shelf = Shelf(spark, recorded.frames_of(spark, rows), are_small=are_small)
    return report.build(shelf, "small", run_id)  # type: ignore[arg-type]


def outcome(*, success: bool, rows_failed: int) -> dict[str, Any]:
    named = {"recording_id": "small", "run_id": "run", "table": "hw_timeline, leo_timeline", "severity": "error"}
    named |= {"expectation": f"hw_within_leo_{success}", "meaning": "A broker's HW is never beyond its LEO."}
    return {**named, "success": success, "rows_checked": 3, "rows_failed": rows_failed, "example": "[]"}


def test_a_loss_is_told_with_everything_that_is_known(spark: SparkSession) -> None:
    rows = recorded.valid_rows()
    rows["data_loss_incidents"][0].update(acked_one_possible=2, acked_possible=2)
    rows["expectation_results"] = [outcome(success=True, rows_failed=0), outcome(success=False, rows_failed=1)]
    found = report_of(spark, rows)
    again, run_id = report.Report.of_json(found.to_json("run")) or pytest.fail("it was not read")
    assert (run_id, again.as_dict(), again.markdown()) == ("run", found.as_dict(), found.markdown())
    assert report.Report.of_json(found.to_json("run")[:-100]) is None  # cut off
    assert report_of(spark, rows, are_small=False).as_dict() == found.as_dict()  # Spark says what DuckDB says
    summary = found.terminal(width=400)
    for words in (
        "small: 3 acknowledged records lost in 1 partition",
        "At most 2 more cannot be ruled out.",
        "3+ ",
        "leader_hw_0: 199 of 200 equal (99.5 %); first at orders-0 seq 4: 6 for 7",
        "rejected: 1 line",
        "expectations: 1 of 2 do not hold",
        "--warehouse '/data/ware house' --recording-id small",
    ):
        assert words in summary
    assert len(found.terminal(width=80).splitlines()) <= 40
    page = found.markdown().replace("\\", "")
    text = "\n".join([page, *report_text.incident_text(found.findings["incidents"][0])])
    for words in (
        "**3 acknowledged records lost in 1 partition**",
        "At most 2 more cannot be ruled out.",
        "orders-0: offsets 7 to 9, 3 records",
        "acks=all 0, acks=1 3 (up to 2 more)",
        "[acks_one_leader_failure]",
        "broker 1 (epoch 0) -> broker 2 (epoch 1)",
        "lost 2024-05-01 03:00:05.000 UTC",
        "  would have kept them:\n    acks=all: 3 of them acknowledged by broker 1 alone",
        "03:00:05.000 broker 2 elected  [controller.log:7]",
        "the logs leave no other explanation [derived]",
        "leader_hw_0: 199 of 200 equal (99.5 %); first at orders-0 seq 4: 6 for 7",
        "Rejected lines: 1",
        "1 x cut off, first r0.log:9",
        "Expectations: 1 of 2 do not hold",
        "broker 1: metadata dump, request log, server log",
        "/data/ware house/data_loss_incidents",
    ):
        assert words in text
    assert "\x1b" not in summary + text
    assert "\x1b[" in found.terminal(colour=True)
    plain = found.as_dict()
    assert plain == json.loads(json.dumps(plain))
    assert (plain["verdict"], plain["acknowledged_lost"], plain["acknowledged_possible"]) == ("lost", 3, 2)
    assert plain["incidents"][0]["lost_ts"].startswith("2024-05-01T03:00:05")


def test_unknown_acknowledgements_are_never_said_as_none(spark: SparkSession) -> None:
    rows = recorded.valid_rows()
    unknown = dict.fromkeys(
        (
            *("acked_all", "acked_one", "unacked", "consumed", "acked_all_possible", "acked_one_possible"),
            *("acked_possible", "acked_unconfirmed", "failed_appended", "producers", "consumers"),
        )
    )
    rows["data_loss_incidents"][0].update(unknown, last_offset=None, records=None, evidence="bounded")
    found = report_of(spark, rows)
    assert "Cannot tell how much was lost in 1 partition: acknowledgements unknown" in found.terminal()
    for text in ("\n".join(report_text.incident_text(found.findings["incidents"][0])), found.markdown()):
        assert "acks=all unknown, acks=1 unknown, unacked unknown" in text
        assert "offsets 7 to the end (open), an unknown number of records" in text
    line = next(one for one in found.terminal().splitlines() if one.startswith("S"))
    assert line.split()[3:5] == ["unknown", "unknown"]
    assert found.as_dict()["acknowledged_lost"] is None


def test_no_incident_is_good_news_only_where_something_was_recorded(spark: SparkSession) -> None:
    rows = recorded.valid_rows()
    rows["data_loss_incidents"] = []
    assert report_of(spark, rows).as_dict()["headline"] == "Nothing acknowledged was lost as far as the logs tell"
    rows["coverage"] = [row for row in rows["coverage"] if row["state"] == "logged"]
    assert report_of(spark, rows).as_dict()["headline"] == "Nothing acknowledged was lost"
    empty = report_of(spark, {name: [] for name in rows}, run_id=None)
    assert empty.as_dict()["verdict"] == "unknown"
    assert "not validated yet" in empty.terminal()


def test_names_from_logs_stay_text(spark: SparkSession) -> None:
    rows = recorded.valid_rows()
    rows["data_loss_incidents"][0].update(producers=["\x1b[2Jevil", "<img src=x>", "[a](b) `c` *d*"])
    found = report_of(spark, rows)
    told = "\n".join(report_text.incident_text(found.findings["incidents"][0]))
    assert "\x1b" not in found.terminal() + told
    assert "\\x1b[2Jevil" in told
    page = found.markdown()
    assert "<img" not in page
    assert "\\[a\\](b) \\`c\\` \\*d\\*" in page
