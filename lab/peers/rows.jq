# Adds rows to a run's JSON, each a claim with the medians of its stores in order. README's table has
# them, and `testing/tidy` compares it: ./run.sh --engines runstone,rocksdb,fjall --json | jq -c -f rows.jq
def of(name): [.medians[].measured[name]];
.rows = [
    {claim: "puts a second", here: of("loads_per_second")},
    {claim: "gets a second that hit", here: of("hits_per_second")},
    {claim: "gets a second that miss", here: of("misses_per_second")},
    {claim: "scans of 100 a second", here: of("scans_per_second")},
    {claim: "peak resident memory, MiB", here: of("peak_bytes") | map(. / 1048576)},
    {claim: "written, MB", here: of("written_bytes") | map(. / 1000000)},
    {claim: "on disk, MB", here: of("disk_bytes") | map(. / 1000000)}
]
