"""Counts the lines of the packages at revisions, by their kind; ``--by-folder`` for each folder too.

``--later`` counts the code of modules for features that came after issue H was written, on 22 November 2026
at 2bc8780, apart from the code of the features of that day.

python -m tests.code_size [--by-folder] [--later] 2bc8780 HEAD
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter

PACKAGES = ("engine", "operators", "connectors")
KINDS = ("modules", "lines", "code", "docstrings", "blank")
LATER = {
    "operators": """
        cues/ encode/ duplicates/ parts/ descriptions/ models/pretrained embed/network_inputs
        metrics/importance metrics/group_scores metrics/paired splits/near_duplicates grasp/placement
        grasp/stability groups/small_groups groups/by_cue weights/class_limits weights/classes
        outliers/assessment outliers/cross_fit outliers/evidence outliers/explanation outliers/linear
        outliers/mixture outliers/neighbours outliers/planted outliers/report outliers/sample
        outliers/screen outliers/shortcut_free outliers/state outliers/trees outliers/verdict
        report/importances encoded_features explanations leaks readable row_identity bounded_json
        array_files class_shares values yaml_text immutable_model threads memory ingest/label_checks
    """,
    "engine": """
        api/airflow api/curation api/estimators api/execution api/published api/tables api/torch_rows
        api/training_rows api/__init__ cli/columns cli/cues cli/explain cli/groups cli/init cli/policy
        cli/predict cli/retract cli/json_record cli/recipe_records cli/run_records cli/training_records
        cli/version_records cli/schema cli/safe_output core/alarm core/child_process core/policy
        core/terminal core/pandas_import core/legacy execution/large_numbers execution/memory_limit
        execution/node_health plan/executor_choice plan/estimate plan/first_recipe plan/fitted_rows
        plan/likely_leaks plan/preview plan/recipe_text plan/sample plan/source_columns plan/source_keys
        plan/exports publish/croissant publish/dataset_card publish/export_records publish/lineage_
        publish/own_artifacts publish/record_delivery publish/withdrawn_models recipe/estimators
        recipe/objectives recipe/pretrained recipe/promotion recipe/search recipe/training_plugins
        report/described_groups report/withdrawn runs/deadline runs/description runs/explain
        runs/retraction runs/row_changes runs/row_keys runs/plugins/dagster_pipes
        runs/plugins/descriptions runs/plugins/leaks runs/plugins/openlineage storage/registrations
        storage/removals storage/state_files storage/version_inputs storage/withdrawals
        storage/version_records training/adaptive_search training/callbacks training/champion
        training/estimators training/importance training/last_layer training/least_squares
        training/libraries/ training/objectives/ training/live_run training/model_package
        training/pretrained training/prediction training/progress training/raw_rows training/reference
        training/regression_scores training/rules/registry training/served_files training/strength
        training/stored_models training/row_samples training/column_checks
    """,
    "connectors": """
        cells cleaned csv_guess csv_marks encoding_guess text_encoding flattened wrapper policy links
        pickled_types written_out foundation/ storage/beneath tables/delta_log tables/guarded_http
        tables/hf_export tables/iceberg_checks tables/legacy tables/sqlite_check tables/sqlite_cursor
    """,
}
"""Beginnings of the paths of modules, by package, whose features came after 2bc8780: assigned by hand."""


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def sizes(text: str) -> Counter[str]:
    """Return the number of lines of a module by kind; a docstring's blank lines belong to it."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = Counter(modules=1)
    for number, line in enumerate(text.splitlines(), 1):
        found["lines"] += 1
        found["docstrings" if number in documented else "code" if line.strip() else "blank"] += 1
    return found


def folder_of(name: str) -> str:
    """Return the package and its folder that hold a module, such as ``operators/eos``."""
    return "/".join(name.split("/")[:-1][:2])


def is_later(name: str) -> bool:
    """Return whether a module belongs to a feature that came after issue H was written."""
    package, _, path = name.partition("/")
    return path.startswith(tuple(LATER[package].split()))


def by_module(revision: str) -> dict[str, Counter[str]]:
    """Return the sizes of the modules at a revision."""
    names = git("ls-tree", "-r", "--name-only", revision, *PACKAGES).split()
    return {name: sizes(git("show", f"{revision}:{name}")) for name in names if name.endswith(".py")}


def by_folder(modules: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Return the sizes of modules added up by their folder."""
    found: dict[str, Counter[str]] = {}
    for name, size in modules.items():
        found.setdefault(folder_of(name), Counter()).update(size)
    return found


def print_later(modules: dict[str, Counter[str]]) -> None:
    """Print, for each package, the lines of code of later features and of those of 22 November 2026."""
    for package in PACKAGES:
        code: Counter[bool] = Counter()
        for name, size in modules.items():
            if name.startswith(f"{package}/"):
                code[is_later(name)] += size["code"]
        print(f"  {package}: {code[True]:,} code of later features, {code[False]:,} of those before")


def main() -> None:
    """Print one line for each revision, and a table of the folders' lines if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.code_size")
    parser.add_argument("--by-folder", action="store_true")
    parser.add_argument("--later", action="store_true")
    parser.add_argument("revisions", nargs="*", default=["HEAD"])
    arguments = parser.parse_args()
    modules = {revision: by_module(revision) for revision in arguments.revisions}
    found = {revision: by_folder(one) for revision, one in modules.items()}
    for revision, folders in found.items():
        total = sum(folders.values(), Counter())
        print(revision, ", ".join(f"{total[kind]:,} {kind}" for kind in KINDS))
        if arguments.later:
            print_later(modules[revision])
    if arguments.by_folder:
        print("folder", *found)
        for folder in sorted(set().union(*found.values())):
            print(folder, *(f"{folders.get(folder, Counter())['lines']:,}" for folders in found.values()))


if __name__ == "__main__":
    main()
