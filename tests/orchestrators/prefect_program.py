"""Runs the flow of an example in Prefect's environment, and prints its result or the exit code."""

import importlib.util
import json
import sys

spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
tries = []
example.curate = example.curate.with_options(
    retry_delay_seconds=0, on_running=[lambda task, run, state: tries.append(run.run_count)]
)
state = example.churn(return_state=True)
result = state.result(raise_on_failure=False)
end = {"result": result} if state.is_completed() else {"exit_code": result.returncode, "tries": len(tries)}
print(json.dumps(end))
