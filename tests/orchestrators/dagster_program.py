"""Materialises the asset of an example in Dagster's environment, and prints what Dagster knows of it then."""

import importlib.util
import json
import sys

import dagster as dg

file, name = sys.argv[1:]
spec = importlib.util.spec_from_file_location("example", file)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
asset = getattr(example, name)
found = {}
with dg.DagsterInstance.ephemeral() as instance:
    resources = {"pipes": dg.PipesSubprocessClient()} if name == "churn" else {}
    done = dg.materialize([asset], resources=resources, instance=instance, raise_on_error=False)
    found["success"] = done.success
    for event in done.get_asset_materialization_events():
        made = event.materialization
        found["metadata"] = {key: value.value for key, value in made.metadata.items()}
        found["data_version"] = made.tags.get("dagster/data_version")
    found["checks"] = {
        one.check_name: {"passed": one.passed, "severity": one.severity.value, "metadata": [*one.metadata]}
        for one in done.get_asset_check_evaluations()
    }
    found["errors"] = [event.message for event in done.all_events if event.is_step_failure]
    found["retries"] = sum(event.is_step_up_for_retry for event in done.all_events)
print(json.dumps(found))
