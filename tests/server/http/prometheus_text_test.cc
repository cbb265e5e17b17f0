#include "server/http/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/instruments.h"
#include "server/monitor/server_state.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(PrometheusTextTest, WritesTheTextFormat) {
  FamilyList list;
  list.Begin("a_bytes_total", FamilyList::kCounter, "Bytes.");
  list.Add(12, {{"way", "stream"}});
  list.Begin("empty", FamilyList::kGauge, "Has no metric.");
  list.Begin("b", FamilyList::kGauge, "A gauge.");
  list.Add(0.5, {{"name", "a \"quoted\"\nbackslash \\"}});
  DurationHistogram histogram;
  histogram.Record(absl::Milliseconds(2));
  histogram.Record(absl::Milliseconds(2));
  histogram.Record(absl::Hours(2));
  list.Begin("c_seconds", FamilyList::kHistogram, "Times.");
  list.Add(histogram.Read());
  const std::string text = PrometheusText(std::move(list).Take());
  EXPECT_THAT(text, HasSubstr("# HELP a_bytes_total Bytes.\n"
                              "# TYPE a_bytes_total counter\n"
                              "a_bytes_total{way=\"stream\"} 12\n"
                              "# HELP b A gauge.\n# TYPE b gauge\n"));
  EXPECT_THAT(text,
              HasSubstr("b{name=\"a \\\"quoted\\\"\\nbackslash \\\\\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"60\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"+Inf\"} 3\n"));
}

}  // namespace
}  // namespace ballast
