"""Reads a manifest as a CronWorkflow of Argo's API and prints it again. Runs in hera's environment."""

import json
import sys

import yaml
from hera.workflows.models import CronWorkflow

with open(sys.argv[1], encoding="utf-8") as file:
    read = yaml.safe_load(file)
print(json.dumps(json.loads(CronWorkflow.model_validate(read).json(exclude_none=True, by_alias=True))))
