"""Parts of a release beside the wheel: hashes, digests of base images, licences, an SBOM and an audit."""
