"""Names and types of the columns that operators add and read, and suffixes of their names."""

from __future__ import annotations

import pyarrow as pa

ROW_ID = "row_id"
VALID = "valid"
FEATURES = "x"
FEATURE_FAULT = "x_fault"
LABEL = "y"
GRADIENT = "gradient"
FACTORS = "gradient_factors"
PREDICTION = "prediction"
LOSS = "loss"
GROUP = "group"
IS_OUTLIER = "is_outlier"
OUTLIER_SOURCE = "outlier_source"
GROUP_OUTLIER = "group_outlier"
MARKED_BY = "marked_by"
MARK = "_outlier"
"""Suffix of the column of an operator that marks outliers, ``<name>_outlier``: a bool, or the reason as text
(empty if the row is not marked)."""
FACTOR = "_weight"
"""Suffix of the column of an operator that weights rows, ``<name>_weight``: a factor of the published
weight.
"""
WEIGHT = "weight"
PART = "part"
"""Column of ``parts``: which rows operators learn from, and which are held out from every ``fit``."""
SPLIT = "split"
DUPLICATE_OF = "duplicate_of"
"""Column of ``duplicates``: row id of the oldest row that a row nearly duplicates, or null."""

VECTOR = pa.list_(pa.field("item", pa.float32(), nullable=False))
CATEGORY = pa.dictionary(pa.int8(), pa.string())
REASON = pa.struct([("column", pa.string()), ("value", pa.string()), ("error", pa.string())])
"""Type of ``x_fault``: the reason why a row has no features, or null. Every operator that adds ``x`` adds
this column too, and ``ingest`` quarantines the rows that have a reason."""
