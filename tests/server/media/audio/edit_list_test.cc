#include "server/media/video/decoder/edit_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ballast::video_decoder {
namespace {

// At 16 kHz, of a movie in milliseconds: (from, to), of silence (-length, 0).
std::vector<std::pair<int64_t, int64_t>> Play(const std::vector<Edit>& edits,
                                              int64_t samples,
                                              std::string* reason) {
  std::vector<Stretch> stretches;
  if (!GetStretches({1000, edits}, 1, 16000, samples, &stretches, reason)) {
    return {};
  }
  std::vector<std::pair<int64_t, int64_t>> played;
  for (const Stretch& stretch : stretches) {
    played.emplace_back(stretch.is_silent ? -stretch.length() : stretch.from,
                        stretch.is_silent ? 0 : stretch.to);
  }
  return played;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(EditListTest, AnEditEndsAfterItsDuration) {
  std::string reason;
  EXPECT_THAT(Play({{850, 1024}}, 28224, &reason),
              ElementsAre(Pair(1024, 1024 + 13600)));
}

// The duration is rounded to the movie's unit, so the stream's end counts.
TEST(EditListTest, AnEditUpToTheEndHasAllSamples) {
  std::string reason;
  for (const int64_t samples : {28220, 28224, 28231}) {
    EXPECT_THAT(Play({{1700, 1024}}, samples, &reason),
                ElementsAre(Pair(1024, samples)));
  }
  EXPECT_THAT(Play({{9000, 1024}}, 28224, &reason),
              ElementsAre(Pair(1024, 28224)));
  EXPECT_THAT(Play({{0, 1024}}, 28224, &reason),
              ElementsAre(Pair(1024, 28224)));
}

// Fragments follow whose samples the list does not count.
TEST(EditListTest, TheLastEditOfFragmentsIsOpen) {
  std::string reason;
  EXPECT_THAT(Play({{100, 1024}}, kToTheEnd, &reason),
              ElementsAre(Pair(1024, kToTheEnd)));
  EXPECT_THAT(Play({{100, 1024}, {100, 8000}}, kToTheEnd, &reason),
              ElementsAre(Pair(1024, 2624), Pair(8000, kToTheEnd)));
}

TEST(EditListTest, SilenceIsBetweenTwoEditsAlone) {
  std::string reason;
  EXPECT_THAT(
      Play({{50, -1}, {100, 0}, {20, -1}, {30, -1}, {100, 16000}, {70, -1}},
           64000, &reason),
      ElementsAre(Pair(0, 1600), Pair(-800, 0), Pair(16000, 17600)));
}

TEST(EditListTest, EditsThatAdjoinDoNotOverlap) {
  std::string reason;
  // 33 ms are 528 samples, and the next edit begins at 520.
  EXPECT_THAT(Play({{33, 0}, {33, 520}}, 64000, &reason),
              ElementsAre(Pair(0, 520), Pair(520, 1048)));
}

TEST(EditListTest, RefusesWhatIsNotPlayedOnceInOrder) {
  std::string reason;
  EXPECT_THAT(Play({{100, 8000}, {100, 0}}, 64000, &reason), IsEmpty());
  EXPECT_THAT(reason, testing::HasSubstr("twice, or not in its order"));
  EXPECT_THAT(Play({{100, 0, false}}, 64000, &reason), IsEmpty());
  EXPECT_THAT(reason, testing::HasSubstr("another speed"));
  EXPECT_THAT(Play({{100, -1}}, 64000, &reason), IsEmpty());
  EXPECT_THAT(reason, testing::HasSubstr("plays no audio"));
  EXPECT_THAT(Play({{100, 70000}}, 64000, &reason), IsEmpty());
  // Whatever numbers a damaged file has.
  for (const uint64_t duration : {uint64_t{1}, ~uint64_t{0}}) {
    for (const int64_t time : {INT64_MIN, int64_t{0}, INT64_MAX}) {
      for (const int64_t samples : {int64_t{1}, kToTheEnd}) {
        Play({{duration, time}, {duration, time}}, samples, &reason);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::video_decoder
