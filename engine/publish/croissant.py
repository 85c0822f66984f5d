"""The description of a version in Croissant 1.1: JSON-LD that dataset catalogues and loaders read.

Everything comes from the manifest, so that the same version has the same description wherever it is made.
``mlcroissant`` loads the rows by it: ``mlcroissant.Dataset("versions/<version>/croissant.json")``.

Source: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from engine.plan.chain import contract_columns
from operators.base import ROW_ID, SPLIT
from operators.counts import count

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
PARQUET = "application/x-parquet"
MAX_SOURCE_FILES = 100
"""Maximum number of source files that are named; the manifest names all of them."""

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The names of the standard; loaders warn where one is missing."""

TYPES = {
    "bool": "sc:Boolean",
    **{f"{sign}int{bits}": f"cr:{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": "cr:Float16",
    "float": "cr:Float32",
    "double": "cr:Float64",
}
TYPES_BY_BEGINNING = {
    "timestamp": "sc:DateTime",
    "date": "sc:Date",
    "time": "sc:Time",
    "decimal": "sc:Float",
    "string": "sc:Text",
    "large_string": "sc:Text",
    "binary": "sc:Text",
    "large_binary": "sc:Text",
    "null": "sc:Text",
}
DICTIONARY = re.compile(r"dictionary<values=(.*), indices=\w+, ordered=\d>")
LIST = re.compile(r"(?:large_|fixed_size_)?list<\w+: (.*?)(?: not null)?>(?:\[(\d+)\])?")

SPLITS = {
    "train": "cr:TrainingSplit",
    "validation": "cr:ValidationSplit",
    "test": "cr:TestSplit",
}
"""Splits that Croissant has a name for. Rows that are ``dropped`` belong to none."""


def describe_version(
    manifest: Mapping[str, Any], *, withdrawn: str = "", published: str = ""
) -> dict[str, Any]:
    """Return the description of a version as a JSON-LD object.

    Columns of structs and maps have no field, as loaders cannot read them by one.

    Parameters
    ----------
    manifest
        The manifest of a version; paths in it carry no secrets.
    withdrawn
        Why the version was withdrawn; empty if it stands.
    published
        Date of its publication as ISO 8601 has it; empty if it is not known.
    """
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": manifest["recipe"],
        "description": (
            f"{count(manifest['rows'], 'row')} of {manifest['source']['path']} with an inferred group, an "
            "outlier mark, a sample weight and a split for each row, by Rowsieve without group labels."
        ),
        "version": manifest["version"],
        **({"datePublished": published} if published else {}),
        **({"creativeWorkStatus": f"Withdrawn: {withdrawn}"} if withdrawn else {}),
        "prov:wasDerivedFrom": _sources(manifest["source"]),
        "rai:machineAnnotationTools": [
            f"rowsieve {op['name']} {op['version']}" for op in manifest["operators"]
        ],
        "distribution": [*map(_file, manifest["parts"]), _parts()],
        "recordSet": [_rows(manifest), _splits()],
    }


def _sources(source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of the source with their digests; only the source's path if there are too many."""
    files = source["files"]
    if not files or len(files) > MAX_SOURCE_FILES:
        return [{"@id": _iri(source["path"])}]
    found = []
    for path, identity in sorted(files.items()):
        kind, _, digest = str(identity).partition(":")
        found.append({"@id": _iri(path), **({"sha256": digest} if kind == "sha256" else {})})
    return found


def _iri(path: str) -> str:
    """Return the IRI of a path or URI."""
    return quote(f"file://{path}" if path.startswith("/") else path, safe=":/?#[]@!$&'()*+,;=%~")


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": part["path"],
        "name": part["path"],
        "contentUrl": part["path"],
        "contentSize": f"{part['bytes']} B",
        "encodingFormat": PARQUET,
        "sha256": part["sha256"],
    }


def _parts() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": "parts",
        "name": "parts",
        "description": "All parts of the version, in the order of the source.",
        "encodingFormat": PARQUET,
        "includes": "data/*.parquet",
    }


def _rows(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record set of the rows, with a field for each column."""
    row_id = contract_columns(manifest).get(ROW_ID, {}).get("name")
    key = {"key": {"@id": field_id(row_id)}} if row_id else {}
    return {"@type": "cr:RecordSet", "@id": "rows", "name": "rows", **key, "field": [*_fields(manifest)]}


def _fields(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    outputs = {output["name"]: output for output in manifest["outputs"]}
    split = contract_columns(manifest).get(SPLIT, {}).get("name")
    label = manifest["source"]["label"]
    for column in manifest["schema"]:
        name, output = column["name"], outputs.get(column["name"], {})
        types = data_type(column["type"])
        if types is None:
            continue
        text = output.get("description") or ("The label." if name == label else "A column of the source.")
        field = {
            "@type": "cr:Field",
            "@id": field_id(name),
            "name": name,
            "description": text,
            **types,
            "source": {"fileSet": {"@id": "parts"}, "extract": {"column": name}},
        }
        if name == split and types["dataType"] == "sc:Text":
            field |= {"dataType": ["sc:Text", "cr:Split"], "references": {"field": {"@id": "splits/name"}}}
        yield field


def field_id(column: str) -> str:
    """Return the identifier of a column's field, which is its key in the records that ``mlcroissant`` yields.

    Examples
    --------
    >>> field_id("age"), field_id("income (EUR)")
    ('rows/age', 'rows/income%20%28EUR%29')

    """
    return f"rows/{quote(column, safe='')}"


def data_type(kind: str) -> dict[str, Any] | None:
    """Return ``dataType`` of a field, for lists also their shape.

    None for structs, maps, durations, and lists of lists.

    Parameters
    ----------
    kind
        A type as Arrow prints it.

    Examples
    --------
    >>> data_type("dictionary<values=string, indices=int8, ordered=0>")
    {'dataType': 'sc:Text'}
    >>> data_type("fixed_size_list<item: float>[384]")
    {'dataType': 'cr:Float32', 'isArray': True, 'arrayShape': '384'}

    """
    plain = _without_dictionary(kind)
    found = LIST.fullmatch(plain)
    name = _type_name(_without_dictionary(found[1]) if found else plain)
    if name is None:
        return None
    shape = {"isArray": True, "arrayShape": found[2] or "-1"} if found else {}
    return {"dataType": name, **shape}


def _without_dictionary(kind: str) -> str:
    found = DICTIONARY.fullmatch(kind)
    return found[1] if found else kind


def _type_name(kind: str) -> str | None:
    """Return Croissant's name of a type without parts; None if there is none."""
    if kind in TYPES:
        return TYPES[kind]
    found = re.match(r"[a-z_]+", kind)
    return TYPES_BY_BEGINNING.get(found[0]) if found else None


def _splits() -> dict[str, Any]:
    """Return the enumeration of the splits."""
    url = {"@type": "cr:Field", "@id": "splits/url", "name": "url", "dataType": "sc:URL"}
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"},
            url,
        ],
        "data": [
            {"splits/name": name, "splits/url": SPLITS.get(name)}
            for name in ("train", "validation", "test", "dropped")
        ],
    }
