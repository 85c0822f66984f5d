"""Runs the DAG of an example in Airflow's environment, and prints what its tasks returned."""

import importlib.util
import json
import subprocess
import sys

for command in (["airflow", "db", "migrate"], ["airflow", "dags", "reserialize"]):
    subprocess.run(command, check=True, stdout=sys.stderr)
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
done = example.nightly.test()
found = {
    one.task_id: {
        "state": str(one.state),
        "tries": one.try_number,
        "returned": one.xcom_pull(task_ids=one.task_id),
    }
    for one in done.get_task_instances()
}
print("\n" + json.dumps(found))
