"""Planning: the plan's data model, the planner, the operator chain, sources and incremental runs."""
