#include "client/spread_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fetch_room.h"
#include "client/spread_servers.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule/spread.h"

namespace ballast {
namespace {

constexpr int kMaxDoublings = 6;

using BlockPosition = std::pair<uint64_t, uint32_t>;  // step, micro-batch

// The part of `range` that a server is to make from now on: what it has made
// already, of `before`, is not asked for again; the rest is, from `next` on.
void AddParts(const CircleRange& range, const std::vector<SharePart>& before,
              const BlockPosition& next, std::vector<SharePart>* parts) {
  const auto add = [&](uint64_t first, uint64_t last, BlockPosition from) {
    from = std::max(from, next);
    if (!parts->empty() && parts->back().last + 1 == first && first != 0 &&
        BlockPosition(parts->back().step, parts->back().micro_batch) == from) {
      parts->back().last = last;
      return;
    }
    parts->push_back({first, last, from.first, from.second});
  };
  uint64_t first = range.first;
  for (const SharePart& part : before) {
    if (part.last < first || part.first > range.last) continue;
    if (part.first > first) add(first, part.first - 1, next);
    const uint64_t last = std::min(part.last, range.last);
    add(std::max(first, part.first), last, {part.step, part.micro_batch});
    if (last == range.last) return;
    first = last + 1;
  }
  add(first, range.last, next);
}

class SpreadStream final : public BatchStream {
 public:
  SpreadStream(Connect connect, SpreadOptions options)
      : connect_(std::move(connect)),
        options_(std::move(options)),
        request_(options_.stream.request),
        end_step_(request_.step + request_.steps),
        room_(std::make_shared<FetchRoom>(request_.max_bytes)),
        servers_({request_.role, options_.most_servers, options_.stream.servers,
                  options_.ask, options_.list, options_.stream.failover,
                  options_.stream.clock}),
        position_(request_.step, request_.micro_batch) {}

  absl::Status Start() { return servers_.Start(); }

  ~SpreadStream() override {
    Cancel();
    for (Slot& slot : slots_) Close(&slot);
  }

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() override;
  absl::Status FetchAgain(std::unique_ptr<FetchedBlock> block) override;
  void Cancel() override;
  std::vector<std::unique_ptr<FetchedBlock>> CancelAndTake() override {
    Cancel();
    return {};
  }
  bool HasBlock() override { return false; }

 private:
  // A server's share, and its stream. A server that replaces another takes its
  // slot, so that the other shares stay.
  struct Slot {
    size_t server = 0;
    uint32_t weight = 1;
    bool present = false;
    std::vector<SharePart> parts;
    std::shared_ptr<BatchStream> stream;
    uint64_t number = 0;  // of the stream
  };

  // Gives each server that is well its share from position_ on, and opens the
  // streams whose shares have changed.
  absl::Status Share();
  void ChooseSlots();
  absl::Status Open(Slot* slot);
  // Closes the slot's stream and keeps what it has fetched.
  void Close(Slot* slot);
  // The slot that makes the block at position_; null: no server is there.
  Slot* Owner();
  // Returns the block at position_ from its server; null: ask again.
  absl::StatusOr<std::unique_ptr<FetchedBlock>> Take(Slot* slot);
  absl::Status OnFailure(Slot* slot, const absl::Status& why);
  bool IsCancelled() const {
    MutexLock lock(&mutex_);
    return cancelled_;
  }
  static absl::Status Cancelled() {
    return absl::CancelledError("the batch stream was cancelled");
  }
  std::string Where() const {
    return DescribeBlock(position_.first, position_.second);
  }

  const Connect connect_;
  const SpreadOptions options_;
  const FetchRequest request_;
  const uint64_t end_step_;
  const std::shared_ptr<FetchRoom> room_;
  SpreadServers servers_;

  // Next's thread alone:
  BlockPosition position_;
  std::vector<CircleRange> circle_;  // by slot
  std::map<BlockPosition, std::unique_ptr<FetchedBlock>> fetched_;
  uint64_t last_number_ = 0;
  int hangs_ = 0;  // since the last progress
  OverwriteCount overwrites_;

  std::vector<Slot> slots_;

  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // The open streams, for Cancel.
  std::vector<std::shared_ptr<BatchStream>> open_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<FetchedBlock>> SpreadStream::Next() {
  while (true) {
    BALLAST_RETURN_IF_ERROR(overwrites_.status());
    if (IsCancelled()) return Cancelled();
    if (request_.steps > 0 && position_.first >= end_step_) {
      return absl::OutOfRangeError(absl::StrCat(
          "the stream ended before step ", end_step_, ", after the ",
          request_.steps, " steps that were asked for"));
    }
    if (servers_.TakeNews()) BALLAST_RETURN_IF_ERROR(Share());
    std::unique_ptr<FetchedBlock> block;
    if (const auto found = fetched_.find(position_); found != fetched_.end()) {
      block = std::move(found->second);
      fetched_.erase(found);
    } else if (Slot* const slot = Owner(); slot != nullptr) {
      BALLAST_ASSIGN_OR_RETURN(block, Take(slot));
      if (block == nullptr) continue;
    } else {
      BALLAST_RETURN_IF_ERROR(servers_.AwaitNews(Where()));
      continue;
    }
    FetchRequest wanted;
    wanted.role = request_.role;
    wanted.step = position_.first;
    wanted.micro_batch = position_.second;
    const absl::StatusOr<uint32_t> micro_batches =
        CheckBlockHeader(*block, wanted, Where());
    if (!block->intact()) {
      BALLAST_RETURN_IF_ERROR(FetchAgain(std::move(block)));
      continue;
    }
    BALLAST_RETURN_IF_ERROR(micro_batches.status());
    if (++position_.second == *micro_batches) {
      position_ = {position_.first + 1, 0};
    }
    return block;
  }
}

absl::StatusOr<std::unique_ptr<FetchedBlock>> SpreadStream::Take(Slot* slot) {
  if (!slot->stream->HasBlock()) room_->Need(slot->number);
  absl::StatusOr<std::unique_ptr<FetchedBlock>> block = slot->stream->Next();
  room_->Need(0);
  if (IsCancelled()) return Cancelled();
  absl::Status why = block.status();
  if (absl::IsOutOfRange(why)) {
    why = absl::InternalError(
        absl::StrCat("the server ended its share early: ", why.message()));
  }
  if (why.ok()) {
    const BlockPosition at((*block)->step(), (*block)->micro_batch());
    if (at < position_) return nullptr;  // another server made it meanwhile
    if (at == position_) {
      hangs_ = 0;
      servers_.NoteProgress(slot->server);
      return block;
    }
    why = absl::InternalError(
        absl::StrCat("the server left a block of its share out: sent ",
                     DescribeBlock(at.first, at.second)));
  }
  BALLAST_RETURN_IF_ERROR(OnFailure(slot, why));
  return nullptr;
}

absl::Status SpreadStream::FetchAgain(std::unique_ptr<FetchedBlock> block) {
  BALLAST_RETURN_IF_ERROR(overwrites_.Note(*block));
  LogWarning(servers_.rank(), ": ",
             DescribeBlock(block->step(), block->micro_batch()),
             " was overwritten in shared memory before it was used (was this "
             "process stopped for long?); fetching it again");
  position_ = {block->step(), block->micro_batch()};
  block.reset();
  for (Slot& slot : slots_) {
    Close(&slot);
    slot.parts.clear();
  }
  fetched_.clear();
  servers_.AddNews();
  return absl::OkStatus();
}

void SpreadStream::Cancel() {
  std::vector<std::shared_ptr<BatchStream>> open;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    open = open_;
  }
  for (const auto& stream : open) stream->Cancel();
  servers_.Cancel();
}

void SpreadStream::ChooseSlots() {
  std::vector<SpreadServers::Serving> chosen = servers_.serving();
  for (Slot& slot : slots_) {
    const auto found = std::find_if(
        chosen.begin(), chosen.end(),
        [&](const auto& each) { return each.server == slot.server; });
    slot.present = found != chosen.end();
    if (!slot.present) continue;
    slot.weight = found->weight;
    chosen.erase(found);
  }
  for (const SpreadServers::Serving& each : chosen) {
    auto slot = slots_.end();
    if (slots_.size() >= options_.most_servers) {
      slot = std::find_if(slots_.begin(), slots_.end(),
                          [](const Slot& slot) { return !slot.present; });
    }
    if (slot == slots_.end()) {
      slots_.emplace_back();
      slot = std::prev(slots_.end());
    }
    Close(&*slot);
    slot->server = each.server;
    slot->weight = each.weight;
    slot->present = true;
    slot->parts.clear();
  }
}

absl::Status SpreadStream::Share() {
  ChooseSlots();
  std::vector<SpreadServer> servers;
  for (const Slot& slot : slots_) {
    servers.push_back({slot.weight, slot.present});
  }
  circle_ = DivideCircle(servers);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const auto ranges_of = [](const std::vector<SharePart>& parts) {
      std::vector<std::pair<uint64_t, uint64_t>> ranges;
      for (const SharePart& part : parts) {
        if (!ranges.empty() && ranges.back().second + 1 == part.first) {
          ranges.back().second = part.last;
        } else {
          ranges.emplace_back(part.first, part.last);
        }
      }
      return ranges;
    };
    std::vector<SharePart> whole;
    for (const CircleRange& range : circle_) {
      if (range.server != i) continue;
      whole.push_back({range.first, range.last, 0, 0});
    }
    if (slot.stream != nullptr && ranges_of(whole) == ranges_of(slot.parts)) {
      continue;
    }
    Close(&slot);
    std::vector<SharePart> parts;
    for (const CircleRange& range : circle_) {
      if (range.server == i) AddParts(range, slot.parts, position_, &parts);
    }
    slot.parts = std::move(parts);
    if (!slot.parts.empty()) BALLAST_RETURN_IF_ERROR(Open(&slot));
  }
  return absl::OkStatus();
}

absl::Status SpreadStream::Open(Slot* slot) {
  BatchStream::Options options = options_.stream;
  options.one_attempt = true;
  options.servers = {servers_.name(slot->server)};
  const int doublings =
      std::min(hangs_ / static_cast<int>(slots_.size()), kMaxDoublings);
  options.failover.silent_after *= int64_t{1} << doublings;
  options.failover.slow_after *= int64_t{1} << doublings;
  options.request.step = position_.first;
  options.request.micro_batch = position_.second;
  if (request_.steps > 0) options.request.steps = end_step_ - position_.first;
  BlockShare share;
  share.stride = options_.stride;
  share.offset = CircleOffset(request_.role);
  share.parts = slot->parts;
  options.request.share = std::move(share);
  slot->number = ++last_number_;
  const auto connect = [connect = connect_, server = slot->server, room = room_,
                        number = slot->number](size_t,
                                               const FetchRequest& request)
      -> absl::StatusOr<std::unique_ptr<BatchFetcher>> {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<BatchFetcher> fetcher,
                             connect(server, request));
    return FetchWithin(room, number, std::move(fetcher));
  };
  BALLAST_ASSIGN_OR_RETURN(slot->stream, BatchStream::Create(connect, options));
  MutexLock lock(&mutex_);
  open_.push_back(slot->stream);
  return cancelled_ ? Cancelled() : absl::OkStatus();
}

void SpreadStream::Close(Slot* slot) {
  const std::shared_ptr<BatchStream> stream = std::move(slot->stream);
  slot->stream = nullptr;
  if (stream == nullptr) return;
  {
    MutexLock lock(&mutex_);
    open_.erase(std::remove(open_.begin(), open_.end(), stream), open_.end());
  }
  BlockPosition after = position_;
  for (auto& block : stream->CancelAndTake()) {
    const BlockPosition at(block->step(), block->micro_batch());
    if (at < position_) continue;
    after = {at.first, at.second + 1};
    fetched_[at] = std::move(block);
  }
  for (SharePart& part : slot->parts) {
    const BlockPosition from = std::max(after, {part.step, part.micro_batch});
    part.step = from.first;
    part.micro_batch = from.second;
  }
}

SpreadStream::Slot* SpreadStream::Owner() {
  BlockShare share;
  share.stride = options_.stride;
  share.offset = CircleOffset(request_.role);
  const uint64_t place = share.PlaceOf(position_.first, position_.second);
  for (const CircleRange& range : circle_) {
    if (range.first <= place && place <= range.last) {
      return &slots_[range.server];
    }
  }
  return nullptr;
}

absl::Status SpreadStream::OnFailure(Slot* slot, const absl::Status& why) {
  if (GetFault(why) == Fault::kFinal) return why;
  if (absl::IsDeadlineExceeded(why)) ++hangs_;
  Close(slot);
  slot->parts.clear();
  servers_.NoteFailure(slot->server, why, Where());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchStream>> CreateSpreadStream(
    BatchStream::Connect connect, SpreadOptions options) {
  BALLAST_RETURN_IF_ERROR(CheckFailoverOptions(options.stream.failover));
  if (options.stream.servers.empty() || options.most_servers == 0 ||
      options.most_servers > kMaxSpread) {
    return absl::InvalidArgumentError(
        absl::StrCat("spread is ", options.most_servers, " over ",
                     options.stream.servers.size(), " servers, wanted 1 to ",
                     kMaxSpread, " over at least 1"));
  }
  auto stream =
      std::make_unique<SpreadStream>(std::move(connect), std::move(options));
  BALLAST_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace ballast
