#include "server/serve/pull/pull_session.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ballast {
namespace {

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  return slices;
}

v1::PullResponse Parse(const grpc::ByteBuffer& bytes) {
  std::string all;
  for (const grpc::Slice& slice : SlicesOf(bytes)) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullResponse message;
  EXPECT_TRUE(message.ParseFromString(all));
  return message;
}

TEST(PullWireTest, SendsAChunkWithoutACopy) {
  std::vector<uint8_t> bytes(300000, 5);
  bool released = false;
  Block::Content content;
  content.bytes = bytes;
  OutgoingMessage outgoing;
  outgoing.block =
      std::make_shared<const Block>(content, nullptr, [&] { released = true; });
  outgoing.chunk = outgoing.block->bytes().subspan(1000, 200000);
  grpc::ByteBuffer message = EncodeResponse(std::move(outgoing));
  {
    const std::vector<grpc::Slice> slices = SlicesOf(message);
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_EQ(slices[1].begin(), bytes.data() + 1000);
  }
  EXPECT_EQ(Parse(message).chunk().data(), std::string(200000, 5));
  EXPECT_FALSE(released);
  message.Clear();
  EXPECT_TRUE(released);
}

TEST(PullWireTest, EncodesOtherMessagesAsProtobuf) {
  OutgoingMessage outgoing;
  outgoing.message.mutable_shared()->set_offset(4096);
  EXPECT_EQ(Parse(EncodeResponse(std::move(outgoing))).shared().offset(),
            4096u);
}

TEST(PullWireTest, ParsesRequests) {
  v1::PullRequest request;
  request.mutable_credit()->add_blocks(77);
  const grpc::Slice slice(request.SerializeAsString());
  const auto parsed = DecodeRequest(grpc::ByteBuffer(&slice, 1));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->credit().blocks(0), 77u);
  const grpc::Slice junk("\xff\xff\xff");
  EXPECT_EQ(DecodeRequest(grpc::ByteBuffer(&junk, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kHash[] = "0123456789abcdef0123456789abcdef";

uint8_t FormulaByte(uint64_t step, uint64_t offset) {
  return static_cast<uint8_t>(step * 13 + offset * 7 + offset / 256);
}

// A block that counts its loans and releases. It is in the arena if
// `generation` is not 0.
struct Counts {
  int lent = 0;
  int released = 0;
};
std::unique_ptr<Block> MakeBlock(uint64_t step, uint64_t size,
                                 Counts* counts = nullptr,
                                 uint64_t generation = 0) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(size);
  for (uint64_t i = 0; i < size; ++i) (*bytes)[i] = FormulaByte(step, i);
  Block::Content content;
  content.id = {step, 2};
  content.bytes = *bytes;
  content.checksum = [step] { return step + 1000; };
  if (generation != 0) content.place = ArenaPlace{generation * 256, generation};
  return std::make_unique<Block>(
      content,
      [counts] {
        if (counts != nullptr) ++counts->lent;
      },
      [counts, bytes] {
        if (counts != nullptr) ++counts->released;
      });
}

const ArenaIdentity& TestArena() {
  static const auto* arena = new ArenaIdentity{
      "/dir/a.arena", 1 << 20, std::string(32, 'a'), "0123456789abcdef"};
  return *arena;
}

v1::PullRequest OpenRequest(uint64_t credit,
                            const std::string& fingerprint = kHash) {
  v1::PullRequest request;
  request.mutable_open()->set_fingerprint(fingerprint);
  request.mutable_open()->set_credit(credit);
  return request;
}

v1::PullRequest CreditRequest(uint64_t bytes) {
  v1::PullRequest request;
  request.mutable_credit()->set_bytes(bytes);
  return request;
}

v1::PullRequest LetGo(uint64_t generation) {
  v1::PullRequest request;
  request.mutable_credit()->add_blocks(generation);
  return request;
}

v1::PullRequest MappedRequest(const std::string& nonce) {
  v1::PullRequest request;
  request.mutable_mapped()->set_nonce(nonce);
  return request;
}

PullSession MakeSession(const ArenaIdentity* arena = nullptr) {
  v1::Fingerprint server;
  server.set_hash(kHash);
  return PullSession(server, arena);
}

// A session opened by a client that has answered the arena's offer with
// `nonce`.
PullSession MappedSession(uint64_t credit, const std::string& nonce) {
  PullSession session = MakeSession(&TestArena());
  v1::PullRequest open = OpenRequest(credit);
  open.mutable_open()->set_accepts_arena(true);
  EXPECT_TRUE(session.OnRequest(open).ok());
  EXPECT_FALSE(session.WantsBlock());
  const auto offer = session.NextMessage();
  EXPECT_TRUE(offer.has_value() && offer->message.has_arena());
  EXPECT_EQ(offer->message.arena().path(), "/dir/a.arena");
  EXPECT_EQ(offer->message.arena().bytes(), 1u << 20);
  EXPECT_EQ(offer->message.arena().id(), std::string(32, 'a'));
  EXPECT_TRUE(session.WaitsForClient());
  EXPECT_FALSE(session.WantsBlock());
  EXPECT_FALSE(session.NextMessage().has_value());
  EXPECT_TRUE(session.OnRequest(MappedRequest(nonce)).ok());
  EXPECT_TRUE(session.WantsBlock());
  return session;
}

// Takes the messages of one block and checks them.
void ExpectBlock(PullSession* session, uint64_t step, uint64_t bytes) {
  auto next = session->NextMessage();
  ASSERT_TRUE(next.has_value());
  ASSERT_TRUE(next->message.has_begin());
  EXPECT_EQ(next->message.begin().step(), step);
  EXPECT_EQ(next->message.begin().micro_batch(), 2);
  EXPECT_EQ(next->message.begin().bytes(), bytes);
  EXPECT_EQ(next->message.begin().checksum(), step + 1000);
  uint64_t offset = 0;
  while (offset < bytes) {
    EXPECT_FALSE(session->WantsBlock());
    next = session->NextMessage();
    ASSERT_TRUE(next.has_value());
    ASSERT_NE(next->block, nullptr);
    EXPECT_EQ(next->chunk.size(), std::min(kMiB, bytes - offset));
    for (const uint8_t byte : next->chunk) {
      ASSERT_EQ(byte, FormulaByte(step, offset));
      ++offset;
    }
  }
  EXPECT_EQ(offset, bytes);
  EXPECT_TRUE(session->WantsBlock());
}

// Takes the message of a block that is lent.
void ExpectLent(PullSession* session, uint64_t step, uint64_t bytes,
                uint64_t generation) {
  const auto next = session->NextMessage();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->block, nullptr);
  ASSERT_TRUE(next->message.has_shared());
  const v1::PullResponse::Shared& shared = next->message.shared();
  EXPECT_EQ(shared.step(), step);
  EXPECT_EQ(shared.micro_batch(), 2);
  EXPECT_EQ(shared.bytes(), bytes);
  EXPECT_EQ(shared.checksum(), step + 1000);
  EXPECT_EQ(shared.offset(), generation * 256);
  EXPECT_EQ(shared.generation(), generation);
}

TEST(CreditWindowTest, ABlockMayBeginIfTheUnspentCreditCoversIt) {
  CreditWindow credit(100);
  EXPECT_TRUE(credit.MayBegin(100));
  credit.Begin(60);
  EXPECT_TRUE(credit.MayBegin(40));
  EXPECT_FALSE(credit.MayBegin(41));
  ASSERT_TRUE(credit.Return(20).ok());
  EXPECT_TRUE(credit.MayBegin(60));
  EXPECT_FALSE(credit.MayBegin(61));
}

TEST(CreditWindowTest, ABlockMayBeginIfTheClientHoldsNothing) {
  CreditWindow credit(100);
  EXPECT_TRUE(credit.MayBegin(UINT64_MAX));
  credit.Begin(1000);
  EXPECT_FALSE(credit.MayBegin(1));
  ASSERT_TRUE(credit.Return(999).ok());
  EXPECT_FALSE(credit.MayBegin(100));  // one byte is still held
  EXPECT_TRUE(credit.MayBegin(99));
  ASSERT_TRUE(credit.Return(1).ok());
  EXPECT_TRUE(credit.MayBegin(1000));
}

TEST(CreditWindowTest, BlocksPassOneByOneWithoutCredit) {
  CreditWindow credit(0);
  EXPECT_TRUE(credit.MayBegin(5));
  credit.Begin(5);
  EXPECT_FALSE(credit.MayBegin(5));
  ASSERT_TRUE(credit.Return(5).ok());
  EXPECT_TRUE(credit.MayBegin(5));
}

TEST(CreditWindowTest, RefusesAReturnOfMoreThanIsHeld) {
  CreditWindow credit(100);
  credit.Begin(10);
  const absl::Status status = credit.Return(11);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11, more than the 10"));
  EXPECT_FALSE(credit.Return(UINT64_MAX).ok());
  EXPECT_EQ(credit.held(), 10);
}

TEST(PullSessionTest, SendsABlockAsABeginAndItsChunks) {
  for (const uint64_t bytes :
       {uint64_t{1}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB}) {
    PullSession session = MakeSession();
    EXPECT_FALSE(session.WantsBlock());
    ASSERT_TRUE(session.OnRequest(OpenRequest(bytes)).ok());
    EXPECT_TRUE(session.WantsBlock());
    session.OnBlock(MakeBlock(7, bytes));
    ExpectBlock(&session, 7, bytes);
  }
}

TEST(PullSessionTest, TheNextBlockWaitsForCredit) {
  PullSession session = MakeSession();
  ASSERT_TRUE(session.OnRequest(OpenRequest(100)).ok());
  session.OnBlock(MakeBlock(1, 80));
  ExpectBlock(&session, 1, 80);
  session.OnBlock(MakeBlock(2, 80));
  EXPECT_TRUE(session.WaitsForClient());
  EXPECT_FALSE(session.NextMessage().has_value());
  ASSERT_TRUE(session.OnRequest(CreditRequest(59)).ok());
  EXPECT_FALSE(session.NextMessage().has_value());
  ASSERT_TRUE(session.OnRequest(CreditRequest(1)).ok());
  EXPECT_FALSE(session.WaitsForClient());
  ExpectBlock(&session, 2, 80);
}

TEST(PullSessionTest, ReleasesABlockWithItsLastChunk) {
  Counts counts;
  PullSession session = MakeSession();
  ASSERT_TRUE(session.OnRequest(OpenRequest(4 * kMiB)).ok());
  session.OnBlock(MakeBlock(1, kMiB + 5, &counts));
  session.NextMessage();
  std::optional<OutgoingMessage> first = session.NextMessage();
  std::optional<OutgoingMessage> last = session.NextMessage();
  ASSERT_TRUE(first.has_value() && last.has_value());
  EXPECT_EQ(last->chunk.size(), 5u);
  first.reset();
  EXPECT_EQ(counts.released, 0);
  last.reset();
  EXPECT_EQ(counts.released, 1);
  EXPECT_EQ(counts.lent, 0);
}

TEST(PullSessionTest, LendsABlockUntilTheClientReleasesIt) {
  Counts counts;
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100, &counts, 7));
  ExpectLent(&session, 1, 100, 7);
  EXPECT_TRUE(session.WantsBlock());
  session.OnBlock(MakeBlock(2, 100, &counts, 8));
  ExpectLent(&session, 2, 100, 8);
  EXPECT_EQ(counts.lent, 2);
  EXPECT_EQ(session.lent(), 2u);
  ASSERT_TRUE(session.OnRequest(LetGo(8)).ok());  // in any order
  EXPECT_EQ(counts.released, 1);
  ASSERT_TRUE(session.OnRequest(LetGo(7)).ok());
  EXPECT_EQ(counts.released, 2);
  EXPECT_EQ(session.lent(), 0u);
}

TEST(PullSessionTest, ReleasesLentBlocksWithTheSession) {
  Counts counts;
  {
    PullSession session = MappedSession(kMiB, TestArena().nonce);
    session.OnBlock(MakeBlock(1, 100, &counts, 7));
    ExpectLent(&session, 1, 100, 7);
  }
  EXPECT_EQ(counts.released, 1);
}

TEST(PullSessionTest, LentBytesCountAgainstTheCredit) {
  PullSession session = MappedSession(150, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100, nullptr, 7));
  ExpectLent(&session, 1, 100, 7);
  session.OnBlock(MakeBlock(2, 100, nullptr, 8));
  EXPECT_TRUE(session.WaitsForClient());
  // A client returns lent bytes by naming the block, not as credit.
  EXPECT_EQ(session.OnRequest(CreditRequest(100)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(session.OnRequest(LetGo(7)).ok());
  ExpectLent(&session, 2, 100, 8);
}

TEST(PullSessionTest, RefusesTheReleaseOfABlockThatIsNotLent) {
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100, nullptr, 7));
  ExpectLent(&session, 1, 100, 7);
  const absl::Status status = session.OnRequest(LetGo(9));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("names 9"));
  EXPECT_EQ(session.lent(), 1u);
  ASSERT_TRUE(session.OnRequest(LetGo(7)).ok());
  EXPECT_EQ(session.OnRequest(LetGo(7)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PullSessionTest, SendsBlocksOutsideTheArenaInChunks) {
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100));
  ExpectBlock(&session, 1, 100);
}

TEST(PullSessionTest, SendsBlocksInChunksWithoutAMapping) {
  PullSession session = MappedSession(kMiB, "");
  session.OnBlock(MakeBlock(1, 100, nullptr, 7));
  ExpectBlock(&session, 1, 100);
  // The arena is not offered to a client that does not request it.
  PullSession other = MakeSession(&TestArena());
  ASSERT_TRUE(other.OnRequest(OpenRequest(kMiB)).ok());
  other.OnBlock(MakeBlock(1, 100, nullptr, 7));
  ExpectBlock(&other, 1, 100);
}

TEST(PullSessionTest, RefusesAMappingOfAnotherArena) {
  PullSession session = MakeSession(&TestArena());
  v1::PullRequest open = OpenRequest(1);
  open.mutable_open()->set_accepts_arena(true);
  ASSERT_TRUE(session.OnRequest(open).ok());
  // The arena has not been offered yet.
  EXPECT_EQ(session.OnRequest(MappedRequest(TestArena().nonce)).code(),
            absl::StatusCode::kInvalidArgument);
  session.NextMessage();
  const absl::Status status = session.OnRequest(MappedRequest("another"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dir/a.arena"));
  ASSERT_TRUE(session.OnRequest(MappedRequest(TestArena().nonce)).ok());
  EXPECT_EQ(session.OnRequest(MappedRequest(TestArena().nonce)).code(),
            absl::StatusCode::kInvalidArgument);
}

// Nobody reads a block for a checksum that nobody compares.
TEST(PullSessionTest, LendsBlocksWithoutAChecksumToClientsThatCompareNone) {
  PullSession session = MakeSession(&TestArena());
  v1::PullRequest open = OpenRequest(kMiB);
  open.mutable_open()->set_accepts_arena(true);
  open.mutable_open()->set_skips_shared_checksum(true);
  ASSERT_TRUE(session.OnRequest(open).ok());
  session.NextMessage();
  ASSERT_TRUE(session.OnRequest(MappedRequest(TestArena().nonce)).ok());
  Block::Content content;
  const std::vector<uint8_t> bytes(100);
  content.bytes = bytes;
  content.place = ArenaPlace{256, 7};
  content.checksum = []() -> uint64_t {
    ADD_FAILURE() << "asked for the checksum";
    return 1;
  };
  session.OnBlock(std::make_unique<Block>(content, nullptr, nullptr));
  const auto lent = session.NextMessage();
  ASSERT_TRUE(lent.has_value() && lent->message.has_shared());
  EXPECT_EQ(lent->message.shared().bytes(), 100u);
  EXPECT_EQ(lent->message.shared().checksum(), 0u);
  // A block over the stream has one all the same.
  session.OnBlock(MakeBlock(2, 100));
  ExpectBlock(&session, 2, 100);
}

// A client that holds lent blocks learns of the end before the call ends.
TEST(PullSessionTest, SendsTheEndWhileBlocksAreLent) {
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100, nullptr, 7));
  ExpectLent(&session, 1, 100, 7);
  session.OnEnd(absl::DataLossError("bad"));
  const auto end = session.NextMessage();
  ASSERT_TRUE(end.has_value() && end->message.has_end());
  EXPECT_EQ(end->message.end().code(), 15u);  // gRPC's DATA_LOSS
  EXPECT_EQ(end->message.end().message(), "bad");
  EXPECT_FALSE(session.NextMessage().has_value());
  EXPECT_FALSE(session.WantsBlock());
  EXPECT_EQ(session.end()->code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(session.OnRequest(LetGo(7)).ok());
  EXPECT_EQ(session.lent(), 0u);
}

TEST(PullSessionTest, SendsNoEndIfNoBlockIsLent) {
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnEnd(absl::OkStatus());
  EXPECT_FALSE(session.NextMessage().has_value());
  EXPECT_TRUE(session.end()->ok());
}

TEST(PullSessionTest, SendsNoBlockAfterAStop) {
  Counts counts;
  PullSession session = MappedSession(kMiB, TestArena().nonce);
  session.OnBlock(MakeBlock(1, 100, &counts, 7));
  ExpectLent(&session, 1, 100, 7);
  session.OnBlock(MakeBlock(2, 100, &counts, 8));
  v1::PullRequest stop;
  stop.mutable_stop();
  ASSERT_TRUE(session.OnRequest(stop).ok());
  EXPECT_EQ(counts.released, 1);  // the unsent block
  EXPECT_FALSE(session.NextMessage().has_value());
  EXPECT_TRUE(session.end()->ok());
  EXPECT_EQ(session.lent(), 1u);
}

TEST(PullSessionTest, RefusesRequestsOutOfOrder) {
  PullSession session = MakeSession();
  EXPECT_EQ(session.OnRequest(CreditRequest(0)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.OnRequest(v1::PullRequest()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.open(), nullptr);
  ASSERT_TRUE(session.OnRequest(OpenRequest(1)).ok());
  EXPECT_EQ(session.OnRequest(OpenRequest(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.OnRequest(CreditRequest(1)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PullSessionTest, RefusesAnotherFingerprint) {
  const std::string other(32, 'f');
  absl::Status status = MakeSession().OnRequest(OpenRequest(1, other));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kHash));
  EXPECT_THAT(std::string(status.message()), HasSubstr(other));
  status = MakeSession().OnRequest(OpenRequest(1, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kHash));
}

}  // namespace

}  // namespace ballast
