"""Table formats: sources that are pinned to one version, and exports of published versions."""
