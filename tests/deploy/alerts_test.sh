#!/usr/bin/env bash
# Every alert of deploy/prometheus fires on its fault and on nothing else, as
# evaluated by `promtool`.
set -euo pipefail
if ! command -v promtool >/dev/null; then
  echo "alerts_test.sh: no promtool (Debian: prometheus); install it with" \
    "\`deploy/setup.sh --tests\`" >&2
  exit 1
fi
alerts=$(sed -n 's/^ *- alert: //p' deploy/prometheus/alerts.yaml | sort)
tested=$(grep -o 'alertname: [A-Za-z]*' tests/deploy/alerts_test.yaml | cut -d' ' -f2 | sort -u)
diff <(echo "$alerts") <(echo "$tested") ||
  { echo "alerts of deploy/prometheus/alerts.yaml (<) and of alerts_test.yaml (>) differ" >&2; exit 1; }
for alert in $alerts; do
  grep -q "^|.*\`$alert\`" docs/operations.md ||
    { echo "docs/operations.md (Alerts) lacks $alert" >&2; exit 1; }
done
[[ $(grep -c 'description:' deploy/prometheus/alerts.yaml) == $(wc -w <<<"$alerts") ]] ||
  { echo "an alert of alerts.yaml does not say what to do" >&2; exit 1; }
cd tests/deploy
promtool test rules alerts_test.yaml
