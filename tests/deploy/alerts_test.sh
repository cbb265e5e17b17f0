#!/usr/bin/env bash
# Every alert of deploy/prometheus fires on the fault that it is for and on nothing
# else, as `promtool` sees it.
set -euo pipefail
if ! command -v promtool >/dev/null; then
  echo "SKIPPED: promtool is not installed (Debian: prometheus)"
  exit 0
fi
alerts=$(sed -n 's/^ *- alert: //p' deploy/prometheus/alerts.yaml | sort)
tested=$(grep -o 'alertname: [A-Za-z]*' tests/deploy/alerts_test.yaml | cut -d' ' -f2 | sort -u)
diff <(echo "$alerts") <(echo "$tested") ||
  { echo "alerts of deploy/prometheus/alerts.yaml (<) and of alerts_test.yaml (>) differ" >&2; exit 1; }
cd tests/deploy
promtool test rules alerts_test.yaml
