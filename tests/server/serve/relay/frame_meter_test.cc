#include "server/serve/relay/frame_meter.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum : uint8_t { kData, kHeaders, kPriority, kReset, kSettings, kPing = 6 };
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEnd = 4;  // END_HEADERS
constexpr uint8_t kAck = 1;

// A frame by RFC 9113, 4.1.
std::string Frame(uint8_t type, const std::string& payload, uint8_t flags = 0) {
  std::string frame;
  for (const int shift : {16, 8, 0}) {
    frame.push_back(static_cast<char>(payload.size() >> shift & 0xFF));
  }
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return absl::StrCat(frame, std::string("\0\0\0\1", 4), payload);
}

std::string TakeAll(FrameMeter* meter, absl::string_view bytes, size_t piece,
                    absl::Status* status = nullptr) {
  std::string on;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    const auto work = meter->Take(bytes.substr(i, piece), &on);
    if (!work.ok()) {
      if (status != nullptr) *status = work.status();
      break;
    }
  }
  return on;
}

TEST(FrameMeterTest, HonestBytesGoOnWhateverTheirPieces) {
  const std::string sent = absl::StrCat(
      kPreface, Frame(kSettings, "123456"),
      Frame(kHeaders, std::string(100, 'h'), kEnd), Frame(kData, ""),
      Frame(kData, std::string(70'000, 'd')), Frame(kPing, "12345678"),
      Frame(kHeaders, "a"), Frame(kContinuation, "b"),
      Frame(kContinuation, "c", kEnd), Frame(kReset, "1234"));
  for (const size_t piece : {1, 2, 7, 9, 24, 1000, 1 << 20}) {
    FrameMeter meter;
    EXPECT_TRUE(TakeAll(&meter, sent, piece) == sent) << piece;
    EXPECT_TRUE(meter.has_spoken());
  }
}

TEST(FrameMeterTest, OnlyWholeHeaderBlocksGoOn) {
  FrameMeter meter;
  const std::string begin = Frame(kHeaders, "abc");
  EXPECT_EQ(TakeAll(&meter, absl::StrCat(kPreface, begin), 5), kPreface);
  EXPECT_EQ(TakeAll(&meter, Frame(kContinuation, "d"), 5), "");
  const std::string end = Frame(kContinuation, "e", kEnd);
  EXPECT_EQ(TakeAll(&meter, end.substr(0, end.size() - 1), 5), "");
  EXPECT_EQ(TakeAll(&meter, "e", 5),
            absl::StrCat(begin, Frame(kContinuation, "d"), end));
}

// Data are bounded by flow control, and go on as they come.
TEST(FrameMeterTest, DataGoOnAsTheyCome) {
  FrameMeter meter;
  const std::string data = Frame(kData, std::string(1000, 'd'));
  EXPECT_EQ(TakeAll(&meter, kPreface + data.substr(0, 100), 100),
            kPreface + data.substr(0, 100));
}

TEST(FrameMeterTest, AnEndlessHeaderBlockIsRefused) {
  for (const size_t bytes : {0, 1, 1000, 16384}) {
    FrameMeter meter;
    std::string on;
    ASSERT_TRUE(
        meter.Take(absl::StrCat(kPreface, Frame(kHeaders, "")), &on).ok());
    absl::Status status;
    size_t taken = 0;
    while (status.ok() && taken < 10 * FrameMeter::kMaxHeldBytes) {
      const std::string next = Frame(kContinuation, std::string(bytes, 'a'));
      taken += next.size();
      status = meter.Take(next, &on).status();
    }
    EXPECT_LE(taken, FrameMeter::kMaxHeldBytes + 2 * 16384);
    EXPECT_THAT(std::string(status.message()), HasSubstr("more than 65536"));
    EXPECT_EQ(on, kPreface);
  }
}

TEST(FrameMeterTest, AFrameWithinAHeaderBlockIsRefused) {
  FrameMeter meter;
  absl::Status status;
  TakeAll(&meter, absl::StrCat(kPreface, Frame(kHeaders, ""), Frame(kData, "")),
          100, &status);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("within a header block"));
  FrameMeter other;
  TakeAll(&other, absl::StrCat(kPreface, Frame(kContinuation, "")), 100,
          &status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("without a header"));
}

TEST(FrameMeterTest, ALargeFrameThatIsNotDataIsRefused) {
  FrameMeter meter;
  absl::Status status;
  TakeAll(&meter,
          kPreface + Frame(kSettings, std::string(65537, 's')).substr(0, 9),
          100, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

// gRPC answers what is not HTTP/2: with its own first frames, so that the
// client can tell that there is no TLS.
TEST(FrameMeterTest, OfOtherProtocolsTheFirstBytesGoOn) {
  FrameMeter meter;
  const std::string hello = "\x16\x03\x01" + std::string(100'000, 'x');
  EXPECT_LE(TakeAll(&meter, hello, 1000).size(), sizeof(kPreface) - 1);
  EXPECT_FALSE(meter.has_spoken());
}

// Up to nine times as much, from 64 open calls of the connection on.
TEST(FrameMeterTest, CallsThatStayOpenMakeFurtherOnesDearer) {
  FrameMeter meter;
  std::string on = kPreface;
  ASSERT_TRUE(meter.Take(kPreface, &on).ok());
  std::vector<absl::Duration> work;
  for (int call = 0; call < 101; ++call) {
    std::string frame = Frame(kHeaders, "h", kEnd);
    frame[7] = static_cast<char>((2 * call + 1) >> 8);
    frame[8] = static_cast<char>(2 * call + 1);
    work.push_back(*meter.Take(frame, &on));
  }
  EXPECT_GT(work[64], 8 * work[0]);
  EXPECT_EQ(work[100], work[64]);
  EXPECT_LT(work[4], 2 * work[0]);
}

// A stream ends by either side's RST_STREAM, or by END_STREAM of the server.
TEST(FrameMeterTest, CountsOpenCalls) {
  const auto of = [](std::string frame, char stream) {
    frame[8] = stream;
    return frame;
  };
  FrameMeter meter;
  std::string sent = kPreface;
  for (char stream = 1; stream <= 9; stream += 2) {
    sent += of(Frame(kHeaders, "h", kEnd), stream);
  }
  // Trailers begin no call.
  sent += of(Frame(kHeaders, "t", kEnd), 9) + of(Frame(kReset, "1234"), 3);
  TakeAll(&meter, sent, 7);
  EXPECT_EQ(meter.open_calls(), 4u);
  const std::string answers =
      of(Frame(kHeaders, "headers", kEnd), 1) + of(Frame(kData, "data"), 1) +
      of(Frame(kHeaders, "trailers", kEnd | 1), 1) +
      of(Frame(kReset, "1234"), 5) + of(Frame(kData, "", 1), 7);
  for (size_t i = 0; i < answers.size(); i += 5) {
    meter.Watch(absl::string_view(answers).substr(i, 5));
  }
  EXPECT_EQ(meter.open_calls(), 1u);
}

TEST(FrameMeterTest, UnansweredFramesAreBounded) {
  for (const uint8_t type : {uint8_t{kSettings}, uint8_t{kPing}}) {
    FrameMeter meter;
    std::string on;
    ASSERT_TRUE(meter.Take(kPreface, &on).ok());
    for (size_t i = 0; i < 1000; ++i) {
      ASSERT_TRUE(meter.Take(Frame(type, "12345678"), &on).ok());
      // The client's answers to the server are no questions.
      ASSERT_TRUE(meter.Take(Frame(type, "12345678", kAck), &on).ok());
      if (i >= 63) meter.Watch(Frame(type, "12345678", kAck));
    }
    ASSERT_TRUE(meter.Take(Frame(type, "12345678"), &on).ok());
    EXPECT_THAT(
        std::string(
            meter.Take(Frame(type, "12345678"), &on).status().message()),
        HasSubstr("more than 64 SETTINGS and PING"));
  }
}

TEST(FrameMeterTest, EveryFrameMeansWork) {
  FrameMeter meter;
  std::string on;
  ASSERT_TRUE(meter.Take(kPreface, &on).ok());
  absl::Duration calls;
  for (int i = 0; i < 1000; ++i) {
    calls +=
        *meter.Take(Frame(kHeaders, "h", kEnd) + Frame(kReset, "1234"), &on);
  }
  EXPECT_GE(calls, absl::Milliseconds(50));
  absl::Duration pings;
  for (int i = 0; i < 1000; ++i) {
    pings += *meter.Take(Frame(kPing, "12345678"), &on);
    meter.Watch(Frame(kPing, "12345678", kAck));
  }
  EXPECT_GE(pings, absl::Milliseconds(10));
  EXPECT_LT(pings, calls);
}

}  // namespace
}  // namespace ballast
