"""Prints or runs the statements that make tables and views of a warehouse known to a catalog, for SQL and BI tools.

How to start it:

    ./spark-submit.sh views --warehouse DIR [--dialect spark|duckdb] [--database NAME] [--run]
    spark-submit --properties-file conf/spark-defaults.conf jobs/views.py --warehouse DIR --run
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs import cli, endings
from schemas.errors import InputError

if TYPE_CHECKING:
    import argparse

SPARK, DUCKDB = "spark", "duckdb"
DESCRIPTION = """\
Prints the statements that register the tables of a warehouse, where they lie, and views over them, without nested
columns, in a catalog: Spark's (such as a Hive metastore), or a database of DuckDB's. docs/cookbook.md says what the
views are, and has queries to start from.

Nothing is copied, and nothing of the tables is changed. A catalog shows each table as it stands: while a run goes on,
tables may be of different runs."""
EXAMPLES = (
    "--warehouse /lake/tidemark > views.sql",
    "--warehouse /lake/tidemark --dialect duckdb > views.sql",
    "--warehouse /lake/tidemark --database tidemark --run -- --conf spark.sql.catalogImplementation=hive",
)
EXIT_CODES = "exit codes: 0 done; 1 failed; 2 bad usage or input. Everything after -- goes to spark-submit."
NOTES = {
    SPARK: "For Spark SQL, with Delta in its session. Tables that the catalog has already are left as they are.",
    DUCKDB: (
        "For DuckDB, whose extension `delta` comes from the network. These statements were never run by the tests of "
        "Tidemark, which read the tables by Arrow: tidemark.snapshot(...).duckdb() needs no extension."
    ),
}


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    parser = cli.job_parser("views", DESCRIPTION, EXAMPLES, EXIT_CODES)
    parser.add_argument("--warehouse", metavar="DIR", required=True, help="folder or URI of the tables")
    parser.add_argument(
        "--dialect", choices=(SPARK, DUCKDB), default=SPARK, help="whose SQL it is to be (default: spark)"
    )
    parser.add_argument("--database", metavar="NAME", help="make this database (schema) if it is not there, and use it")
    parser.add_argument(
        "--run", action="store_true", help="run the statements in Spark, for the tables that are there, and name them"
    )
    return parser


def main() -> int:
    """Parse the arguments, then print the statements or run them."""
    args = parser().parse_args()
    if args.run and args.dialect != SPARK:
        message = "--run is for Spark: print the statements for DuckDB, and give them to its client"
        raise InputError(message)
    if not args.run:
        from pipelines.warehouse.views import statements

        print(f"-- {NOTES[args.dialect]}")
        print("\n".join(f"{statement};" for statement in statements(args.warehouse, args.dialect, args.database)))
        return endings.DONE
    from pipelines.spark.session import spark_session
    from pipelines.warehouse.catalog import register

    for name in register(spark_session("tidemark views"), args.warehouse, args.database):
        print(name)
    return endings.DONE


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
