#include "client/spread_stream.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/schedule/spread.h"

namespace ballast {
namespace {

// Interval at which servers that are away are looked at, and at which a stream
// without a server looks for one.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(250);
// A server with a lasting fault is asked again after this long.
constexpr absl::Duration kLastingPause = absl::Minutes(1);
constexpr int kMaxDoublings = 6;

// Bounds the bytes of blocks over all servers of a stream. A fetch ahead is let
// in if a block of the largest size fits beside it: the one that the consumer
// waits for, which is let in at any time. Streams have numbers, above 0.
// Thread-safe.
class FetchRoom {
 public:
  explicit FetchRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Waits until `stream` may fetch a block. False once `*cancelled`.
  bool Enter(uint64_t stream, const std::atomic<bool>* cancelled) {
    MutexLock lock(&mutex_);
    while (!*cancelled && !Fits(stream)) changed_.Wait(&mutex_);
    if (*cancelled) return false;
    ++fetching_;
    return true;
  }
  // The fetch is over; a block of `bytes` is held from now on, 0: none.
  void Leave(uint64_t stream, uint64_t bytes) {
    MutexLock lock(&mutex_);
    --fetching_;
    if (bytes > 0 && stream == needed_) needed_ = 0;  // here it is
    held_ += bytes;
    largest_ = std::max(largest_, bytes);
    changed_.NotifyAll();
  }
  void Release(uint64_t bytes) {
    MutexLock lock(&mutex_);
    held_ -= bytes;
    changed_.NotifyAll();
  }
  // The consumer waits for a block of `stream`, which has none; 0: it does not
  // wait.
  void Need(uint64_t stream) {
    MutexLock lock(&mutex_);
    needed_ = stream;
    changed_.NotifyAll();
  }
  void WakeAll() {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }

 private:
  bool Fits(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stream == needed_) return true;
    if (largest_ == 0) return false;  // the first block says how large
    return held_ + (fetching_ + 2) * largest_ <= max_bytes_;
  }

  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fetching_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t largest_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t needed_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A block counted in the room until it is destroyed.
class CountedBlock final : public FetchedBlock {
 public:
  CountedBlock(std::unique_ptr<FetchedBlock> block,
               std::shared_ptr<FetchRoom> room)
      : block_(std::move(block)),
        size_(block_->bytes().size()),
        room_(std::move(room)) {}
  ~CountedBlock() override {
    block_.reset();
    room_->Release(size_);
  }
  uint64_t step() const override { return block_->step(); }
  uint32_t micro_batch() const override { return block_->micro_batch(); }
  absl::Span<const uint8_t> bytes() const override { return block_->bytes(); }
  bool intact() const override { return block_->intact(); }
  bool may_be_overwritten() const override {
    return block_->may_be_overwritten();
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return block_->region();
  }

 private:
  std::unique_ptr<FetchedBlock> block_;
  const uint64_t size_;
  const std::shared_ptr<FetchRoom> room_;
};

// Fetches within the room.
class RoomFetcher final : public BatchFetcher {
 public:
  RoomFetcher(std::unique_ptr<BatchFetcher> fetcher,
              std::shared_ptr<FetchRoom> room, uint64_t stream)
      : fetcher_(std::move(fetcher)), room_(std::move(room)), stream_(stream) {}

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    waits_ = true;
    const bool entered = room_->Enter(stream_, &cancelled_);
    waits_ = false;
    if (!entered) return absl::CancelledError("the fetch was cancelled");
    absl::StatusOr<std::unique_ptr<FetchedBlock>> block = fetcher_->Fetch();
    room_->Leave(stream_, block.ok() ? (*block)->bytes().size() : 0);
    BALLAST_RETURN_IF_ERROR(block.status());
    return std::make_unique<CountedBlock>(*std::move(block), room_);
  }
  void Cancel() override {
    cancelled_ = true;
    room_->WakeAll();
    fetcher_->Cancel();
  }
  uint64_t bytes_received() const override {
    return fetcher_->bytes_received();
  }
  bool waits_for_client() const override { return waits_; }

 private:
  const std::unique_ptr<BatchFetcher> fetcher_;
  const std::shared_ptr<FetchRoom> room_;
  const uint64_t stream_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> waits_ = false;
};

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
        position_(request_.step, request_.micro_batch),
        sleeper_(options_.stream.clock->NewSleeper()),
        look_sleeper_(options_.stream.clock->NewSleeper()),
        random_(options_.stream.failover.seed) {
    MutexLock lock(&mutex_);
    for (const std::string& name : options_.stream.servers) {
      servers_.emplace_back().name = name;
    }
  }

  absl::Status Start() {
    BALLAST_ASSIGN_OR_RETURN(
        looks_, StartThread("look for servers", [this] { Look(); }));
    return absl::OkStatus();
  }

  ~SpreadStream() override {
    Cancel();
    look_sleeper_->Wake();
    if (looks_.joinable()) looks_.join();
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
  struct Server {
    std::string name;
    bool well = false;  // gets a share
    int failures = 0;   // in a row
    absl::Time not_before = absl::InfinitePast();
    absl::Status last;  // the last failure; OK: none since any progress
  };
  // A server's share, and its stream. A server that replaces another takes its
  // slot, so that the other shares stay.
  struct Slot {
    size_t server = 0;
    bool present = false;
    std::vector<SharePart> parts;
    std::shared_ptr<BatchStream> stream;
    uint64_t number = 0;  // of the stream
  };

  // The thread that asks servers that are away, and looks for new ones.
  void Look();
  void AskThoseAway();
  void NoteAnswer(size_t server, const absl::Status& answer);
  void ListServers();
  // The calls of Next's thread:
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
  absl::Status OnFailure(Slot* slot, absl::Status why);
  void OnProgress(size_t server);
  // Waits for a server. Errors: CANCELLED; as Failover::OnFailure.
  absl::Status AwaitServer();
  absl::Status Exhausted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Backoff(const Server& server)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  std::string RankName() const {
    const v1::Role& role = request_.role;
    return absl::StrCat(SplitWord(role.split()), ModuleName(role.module()),
                        " rank ", role.dp_rank());
  }

  const Connect connect_;
  const SpreadOptions options_;
  const FetchRequest request_;
  const uint64_t end_step_;
  const std::shared_ptr<FetchRoom> room_;

  // Next's thread alone:
  BlockPosition position_;
  std::vector<CircleRange> circle_;  // by slot
  std::map<BlockPosition, std::unique_ptr<FetchedBlock>> fetched_;
  uint64_t last_number_ = 0;
  int hangs_ = 0;  // since the last progress
  OverwriteCount overwrites_;

  const std::unique_ptr<Sleeper> sleeper_;
  const std::unique_ptr<Sleeper> look_sleeper_;
  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool asked_all_ ABSL_GUARDED_BY(mutex_) = false;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;  // of servers that are well
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);
  absl::Time failing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  // Changed by Next's thread alone.
  std::vector<Slot> slots_;
  // The open streams, for Cancel.
  std::vector<std::shared_ptr<BatchStream>> open_ ABSL_GUARDED_BY(mutex_);
  std::thread looks_;
};

absl::StatusOr<std::unique_ptr<FetchedBlock>> SpreadStream::Next() {
  while (true) {
    BALLAST_RETURN_IF_ERROR(overwrites_.status());
    bool news = false;
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return Cancelled();
      news = std::exchange(news_, false);
    }
    if (request_.steps > 0 && position_.first >= end_step_) {
      return absl::OutOfRangeError(absl::StrCat(
          "the stream ended before step ", end_step_, ", after the ",
          request_.steps, " steps that were asked for"));
    }
    if (news) BALLAST_RETURN_IF_ERROR(Share());
    std::unique_ptr<FetchedBlock> block;
    if (const auto found = fetched_.find(position_); found != fetched_.end()) {
      block = std::move(found->second);
      fetched_.erase(found);
    } else if (Slot* const slot = Owner(); slot != nullptr) {
      BALLAST_ASSIGN_OR_RETURN(block, Take(slot));
      if (block == nullptr) continue;
    } else {
      BALLAST_RETURN_IF_ERROR(AwaitServer());
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
      OnProgress(slot->server);
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
  LogWarning(RankName(), ": ",
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
  MutexLock lock(&mutex_);
  news_ = true;
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
  sleeper_->Wake();
}

void SpreadStream::ChooseSlots() {
  std::vector<std::string> names;
  std::vector<size_t> numbers;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!servers_[i].well) continue;
      names.push_back(servers_[i].name);
      numbers.push_back(i);
    }
  }
  const std::vector<uint32_t> weights(names.size(), 1);
  std::vector<size_t> chosen;
  for (size_t i :
       ChooseServers(request_.role, names, weights, options_.most_servers)) {
    chosen.push_back(numbers[i]);
  }
  for (Slot& slot : slots_) {
    const auto found = std::find(chosen.begin(), chosen.end(), slot.server);
    slot.present = found != chosen.end();
    if (slot.present) chosen.erase(found);
  }
  for (const size_t server : chosen) {
    auto slot = slots_.end();
    if (slots_.size() >= options_.most_servers) {
      slot = std::find_if(slots_.begin(), slots_.end(),
                          [](const Slot& each) { return !each.present; });
    }
    if (slot == slots_.end()) {
      slots_.emplace_back();
      slot = std::prev(slots_.end());
    }
    Close(&*slot);
    slot->server = server;
    slot->present = true;
    slot->parts.clear();
  }
}

absl::Status SpreadStream::Share() {
  ChooseSlots();
  std::vector<SpreadServer> servers;
  for (const Slot& slot : slots_) servers.push_back({1, slot.present});
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
  {
    MutexLock lock(&mutex_);
    options.servers = {servers_[slot->server].name};
    const int doublings =
        std::min(hangs_ / static_cast<int>(servers_.size()), kMaxDoublings);
    options.failover.silent_after *= int64_t{1} << doublings;
    options.failover.slow_after *= int64_t{1} << doublings;
  }
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
    return std::make_unique<RoomFetcher>(std::move(fetcher), room, number);
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

void SpreadStream::OnProgress(size_t server) {
  hangs_ = 0;
  MutexLock lock(&mutex_);
  failing_since_ = absl::InfiniteFuture();
  servers_[server].failures = 0;
  for (Server& each : servers_) {
    if (each.well) each.last = absl::OkStatus();
  }
}

absl::Status SpreadStream::OnFailure(Slot* slot, absl::Status why) {
  if (GetFault(why) == Fault::kFinal) return why;
  if (absl::IsDeadlineExceeded(why)) ++hangs_;
  Close(slot);
  slot->parts.clear();
  MutexLock lock(&mutex_);
  Server& server = servers_[slot->server];
  const absl::Time now = options_.stream.clock->Now();
  failing_since_ = std::min(failing_since_, now);
  server.well = false;
  ++server.failures;
  server.last = why;
  server.not_before = now + Backoff(server);
  news_ = true;
  const auto others =
      std::count_if(servers_.begin(), servers_.end(),
                    [](const Server& each) { return each.well; });
  LogWarning(
      RankName(), ": ", server.name, " failed at ", Where(), ": ",
      why.message(), "; ", others,
      others == 1 ? " server makes its blocks" : " servers make its blocks");
  return absl::OkStatus();
}

absl::Duration SpreadStream::Backoff(const Server& server) {
  if (GetFault(server.last) == Fault::kLasting) return kLastingPause;
  const FailoverOptions& failover = options_.stream.failover;
  absl::Duration backoff = failover.first_backoff;
  for (int i = 1; i < server.failures && backoff < failover.max_backoff; ++i) {
    backoff *= 2;
  }
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  const double random = static_cast<double>(random_ >> 11) * 0x1p-53;
  return std::min(backoff, failover.max_backoff) *
         (1 - failover.jitter * random);
}

absl::Status SpreadStream::AwaitServer() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return Cancelled();
      if (news_) return absl::OkStatus();
      BALLAST_RETURN_IF_ERROR(Exhausted());
    }
    if (!sleeper_->Sleep(kLookPeriod)) return Cancelled();
  }
}

absl::Status SpreadStream::Exhausted() const {
  const absl::Time now = options_.stream.clock->Now();
  const bool patient = now - failing_since_ < options_.stream.failover.patience;
  bool lasting = true;
  std::string message = absl::StrCat("gave up at ", Where(), ": none of the ",
                                     servers_.size(), " servers can go on");
  for (const Server& server : servers_) {
    lasting = lasting && GetFault(server.last) == Fault::kLasting;
    absl::StrAppend(&message, "; ", server.name, ": ", server.last.message());
  }
  if (patient && !lasting) return absl::OkStatus();
  return absl::Status(
      lasting ? servers_[0].last.code() : absl::StatusCode::kUnavailable,
      message);
}

void SpreadStream::Look() {
  AskThoseAway();
  {
    // Shares begin once all have been asked.
    MutexLock lock(&mutex_);
    asked_all_ = true;
    news_ = true;
  }
  absl::Time listed = options_.stream.clock->Now();
  while (look_sleeper_->Sleep(kLookPeriod)) {
    const absl::Time now = options_.stream.clock->Now();
    if (options_.list != nullptr && now - listed >= kListPeriod) {
      listed = now;
      ListServers();
    }
    AskThoseAway();
  }
}

void SpreadStream::ListServers() {
  const std::vector<std::string> names = options_.list();
  MutexLock lock(&mutex_);
  for (size_t i = servers_.size(); i < names.size(); ++i) {
    LogInfo(RankName(), ": ", names[i], " is new");
    servers_.emplace_back().name = names[i];
  }
}

void SpreadStream::AskThoseAway() {
  std::vector<size_t> due;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.stream.clock->Now();
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!servers_[i].well && servers_[i].not_before <= now) due.push_back(i);
    }
  }
  // At once: one that does not answer must not keep the others waiting.
  std::vector<std::thread> threads;
  for (size_t i = 1; i < due.size(); ++i) {
    auto thread = StartThread("ask a server", [this, server = due[i]] {
      NoteAnswer(server, options_.ask(server));
    });
    if (thread.ok()) threads.push_back(*std::move(thread));
  }
  if (!due.empty()) NoteAnswer(due[0], options_.ask(due[0]));
  for (std::thread& thread : threads) thread.join();
}

void SpreadStream::NoteAnswer(size_t number, const absl::Status& answer) {
  MutexLock lock(&mutex_);
  Server& server = servers_[number];
  if (answer.ok()) {
    if (asked_all_) {
      LogInfo(RankName(), ": ", server.name, " serves, and takes a share");
    }
    server.well = true;
    news_ = asked_all_;
    return;
  }
  // Once for each cause, not for each question.
  if (server.last.code() != answer.code()) {
    LogWarning(RankName(), ": going on without ", server.name, ": ",
               answer.message());
  }
  const absl::Time now = options_.stream.clock->Now();
  ++server.failures;
  server.last = answer;
  server.not_before = now + Backoff(server);
  if (std::none_of(servers_.begin(), servers_.end(),
                   [](const Server& each) { return each.well; })) {
    failing_since_ = std::min(failing_since_, now);
  }
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
