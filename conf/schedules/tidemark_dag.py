"""Tidemark in Airflow 3: a DAG per recording, every hour, and one for the upkeep of the warehouse, once a week.

Copy it to the folder of DAGs, and change the constants.

`work_off` does the work: it succeeds when the tables are written, whatever they say. `findings` fails when something
was found. So what reads the tables waits for the first, and what tells people hangs on the second. (Airflow's own
SparkSubmitOperator does not tell exit codes apart: it would try a finding again.)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

SCRIPT = "/opt/tidemark/spark-submit.sh"
WAREHOUSE = "/srv/tidemark/warehouse"
RECORDINGS = {"prod": "/srv/tidemark/recordings/prod"}
SPARK_FLAGS: list[str] = []  # such as "--master", "yarn"

DONE, BAD_INPUT, EXPECTATIONS_FAILED, LOSSES_FOUND = 0, 2, 3, 4
FINDINGS = {EXPECTATIONS_FAILED: "an expectation failed", LOSSES_FOUND: "records were lost, or the logs cannot tell"}


class Submit(BaseOperator):
    """One job. Its log is the task's log, its value the exit code; a task that is ended ends the job."""

    def __init__(self, *, job: list[str], **kwargs: object) -> None:
        """Nothing is started yet."""
        super().__init__(**kwargs)
        self.job = job
        self._hook: SubprocessHook | None = None

    def execute(self, context: Context) -> int:  # noqa: ARG002 - Airflow's signature
        """Run it; 3 and 4 are results, 2 would come again, and anything else may pass."""
        self._hook = SubprocessHook()
        command = [
            SCRIPT,
            *self.job,
            "--warehouse",
            WAREHOUSE,
            "--json",
            *(["--", *SPARK_FLAGS] if SPARK_FLAGS else []),
        ]
        code: int = self._hook.run_command(command).exit_code
        if code == BAD_INPUT:
            raise AirflowFailException("the input is wrong; the log says which file and line")
        if code not in {DONE, *FINDINGS}:
            raise AirflowException(f"the job ended with {code}")
        return code

    def on_kill(self) -> None:
        """Send SIGTERM to the job: it stops its executors and leaves the tables as they were."""
        if self._hook:
            self._hook.send_sigterm()


@task(retries=0)
def findings(code: int) -> None:
    """Fail if there is something that people have to look at."""
    if code in FINDINGS:
        raise AirflowFailException(f"{FINDINGS[code]}: the report says what")


for name, folder in RECORDINGS.items():
    with DAG(
        dag_id=f"tidemark_{name}",
        schedule="5 * * * *",
        start_date=datetime(2025, 1, 1, tzinfo=UTC),
        catchup=False,  # one run takes in all that is new, however many were missed
        max_active_runs=1,
        default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
        doc_md=__doc__,
    ) as dag:
        job = ["run", "--recording", folder, "--fail-on-loss"]
        run = Submit(task_id="work_off", job=job, execution_timeout=timedelta(hours=12))
        findings(run.output)
    globals()[dag.dag_id] = dag  # where Airflow looks for it

with DAG(
    dag_id="tidemark_maintain",
    schedule="35 2 * * 0",
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    doc_md=__doc__,
):
    Submit(task_id="maintain", job=["maintain"], execution_timeout=timedelta(hours=12))
