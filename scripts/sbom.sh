#!/usr/bin/env bash
# Writes the list of what a program is made of (SBOM), in the form of CycloneDX 1.5: crates with licences, checksums and dependencies, the C
# library that one of them brings, the script of the status page, and Rust's standard library. The same program gives the same bytes.
#   scripts/sbom.sh make PROGRAM TRIPLE FILE
#   scripts/sbom.sh check FILE                 against the schema of CycloneDX, which is fetched from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 1)}
# Of cyclonedx-python-lib.
validator=11.12.0

fail() { printf '%s\n' "$@" >&2; exit 1; }

# What is compiled into the program, a name@version a line: neither what builds it nor what tests it.
crates() {
  cargo tree --locked --package postern ${SBOM_OPTIONS:-} --edges normal,no-proc-macro --target "$1" --prefix none --format '{p}' | awk '{ sub(/^v/, "", $2); print $1 "@" $2 }' | LC_ALL=C sort -u
}

# Checksums of crates, as the registry has them: name@version and the digest.
checksums() {
  awk -F '"' '/^name = /{ name = $2 } /^version = /{ version = $2 } /^checksum = /{ print name "@" version, $2 }' Cargo.lock
}

# The version of the C library that is in a static program: Debian's. Nothing for others.
musl() {
  # shellcheck disable=SC2016
  [[ $1 != *-musl ]] || dpkg-query --admindir=.peers/cross/var/lib/dpkg -W -f '${source:Upstream-Version}\n' musl-dev | head -n 1
}

# Libraries in other languages, and what every program of Rust has: name, version, licence, package URL, description.
others() {
  local program=$1 metadata=$2 triple=$3 folder rust
  folder=$(dirname "$(jq -r '.packages[] | select(.name == "aws-lc-sys") | .manifest_path' "$metadata")")
  rust=$(readelf -p .comment "$program" | sed -n 's/.*rustc version \([0-9.]*\).*/\1/p' | head -n 1)
  [ -n "$rust" ] || fail "$program does not say which rustc has built it"
  jq -nS --arg awslc "$(sed -n 's/^#define AWSLC_VERSION_NUMBER_STRING "\(.*\)"/\1/p' "$folder/aws-lc/include/openssl/base.h")" \
    --arg uplot "$(head -c 200 https/vendor/uplot/uPlot.iife.min.js | sed -n 's/.*(v\([0-9.]*\)).*/\1/p')" --arg rust "$rust" \
    --arg page "$(crates "$triple" | sed -n 's/^maud@.*/page/p')" --arg musl "$(musl "$triple")" --arg license "$(jq -r '.packages[] | select(.name == "aws-lc-sys") | .license' "$metadata")" '[
      {name: "AWS-LC", version: $awslc, license: $license, purl: "pkg:github/aws/aws-lc@v\($awslc)", description: "C library in aws-lc-sys"},
      (if $page == "" then empty else
        {name: "uPlot", version: $uplot, license: "MIT", purl: "pkg:npm/uplot@\($uplot)", description: "script of the status page, in postern-https"} end),
      {name: "std", version: $rust, license: "MIT OR Apache-2.0", purl: "pkg:github/rust-lang/rust@\($rust)", description: "Rust standard library"},
      (if $musl == "" then empty else {name: "musl", version: $musl, license: "MIT", purl: "pkg:generic/musl@\($musl)", description: "C library"} end)]
    | if all(.version != "") then . else error("a version is not known: \(.)") end'
}

# shellcheck disable=SC2016
document='
  ($crates | split("\n") | map(select(. != ""))) as $names
  | ($names | map({(.): true}) | add) as $is_in
  | ($checksums | split("\n") | map(select(. != "") | split(" ") | {(.[0]): .[1]}) | add) as $digest
  | def key: "\(.name)@\(.version)";
    def licences: if . == null then {} else {licenses: [{expression: gsub("/"; " OR ")}]} end;
    (.packages | map({(.id): key}) | add) as $key_of
  | (.packages | map(select($is_in[key])) | sort_by(key)) as $packages
  | ($names - ($packages | map(key))) as $lost
  | if $lost != [] then error("crates that cargo metadata does not know: \($lost)") else . end
  | ($packages[] | select(.name == "postern")) as $postern
  | {
      bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
      metadata: {
        timestamp: $time,
        component: ({type: "application", "bom-ref": ($postern | key), name: "postern", version: $postern.version, description: $postern.description,
          hashes: [{alg: "SHA-256", content: $program}], properties: [{name: "postern:target", value: $triple}]} + ($postern.license | licences))
      },
      components: (
        [$packages[] | select(.name != "postern")
          | {type: "library", "bom-ref": key, name, version}
            + (if .description then {description} else {} end) + (.license | licences)
            + (if .source then {purl: "pkg:cargo/\(.name)@\(.version)"} else {} end)
            + ($digest[key] | if . then {hashes: [{alg: "SHA-256", content: .}]} else {} end)
            + (if .repository then {externalReferences: [{type: "vcs", url: .repository}]} else {} end)]
        + [$others[] | {type: "library", "bom-ref": key, name, version, description, purl} + (.license | licences)]),
      dependencies: (
        [.resolve.nodes[] | select($is_in[$key_of[.id]])
          | {ref: $key_of[.id], dependsOn: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | $key_of[.pkg] | select($is_in[.])] | unique}]
        | map(. as $of | .dependsOn += [$others[] | select({"AWS-LC": "aws-lc-sys", "uPlot": "postern-https", "std": "postern", "musl": "postern"}[.name] as $user
            | $of.ref | startswith("\($user)@")) | key])
        | sort_by(.ref))
    }'

make_document() {
  local program=$1 triple=$2 file=$3 metadata
  metadata=$(mktemp)
  cargo metadata --format-version 1 --locked --filter-platform "$triple" > "$metadata"
  jq -S --arg crates "$(crates "$triple")" --arg checksums "$(checksums)" --argjson others "$(others "$program" "$metadata" "$triple")" \
    --arg program "$(sha256sum "$program" | cut -d ' ' -f 1)" --arg triple "$triple" --arg time "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" \
    "$document" "$metadata" > "$file"
  rm -f "$metadata"
}

check() {
  local folder=.peers/cyclonedx
  if [ ! -e "$folder/.ready-$validator" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install -q "cyclonedx-python-lib[json-validation]==$validator"
    touch "$folder/.ready-$validator"
  fi
  "$folder/bin/python" - "$1" << 'END'
import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = open(sys.argv[1]).read()
wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
if wrong is not None:
    sys.exit(f"{sys.argv[1]}: it is not as the schema says: {str(wrong).splitlines()[0]}")
document = json.loads(text)
references = {component["bom-ref"] for component in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
for dependency in document["dependencies"]:
    unknown = {dependency["ref"], *dependency["dependsOn"]} - references
    if unknown:
        sys.exit(f"{sys.argv[1]}: nothing has these names: {unknown}")
unlicensed = [component["name"] for component in document["components"] if "licenses" not in component]
if unlicensed:
    sys.exit(f"{sys.argv[1]}: no licence: {unlicensed}")
print(f"  {len(document['components'])} components, all with a licence")
END
}

case "${1:-}" in
  make) [ $# = 4 ] || fail "usage: $0 make PROGRAM TRIPLE FILE"; make_document "$2" "$3" "$4" ;;
  check) [ $# = 2 ] || fail "usage: $0 check FILE"; check "$2" ;;
  *) sed -n 's/^# \?//; 2,5p' "$0" >&2; exit 2 ;;
esac
