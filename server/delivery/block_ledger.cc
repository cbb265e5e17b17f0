#include "server/delivery/block_ledger.h"

#include <algorithm>

#include "proto/block/block_layout.h"

namespace ballast {
namespace {

// Returns whether held + bytes <= limit, without wrapping.
bool Within(uint64_t held, uint64_t bytes, uint64_t limit) {
  return held <= limit && bytes <= limit - held;
}

}  // namespace

BlockLedger::BlockLedger(uint64_t memory, uint32_t shares, uint64_t begin,
                         uint64_t end)
    : memory_(memory),
      share_(memory / std::max(shares, 1u)),
      arena_(begin, end) {}

uint64_t BlockLedger::Footprint(uint64_t bytes) {
  return AlignUp(kArenaStampBytes + bytes, kArenaPage);
}

std::optional<BlockLedger::Grant> BlockLedger::Acquire(
    uint64_t stream, const BlockKey& key, uint64_t bytes,
    std::vector<uint64_t>* gone) {
  const uint64_t footprint = Footprint(bytes);
  const auto found = streams_.find(stream);
  const bool must_grant =
      found == streams_.end() || found->second.not_lent == 0;
  const auto of_role = roles_.find(key.role());
  const uint64_t role_holds = of_role == roles_.end() ? 0 : of_role->second;
  const auto known = by_key_.find(key);
  LedgerBlock* entry =
      known == by_key_.end() ? nullptr : &blocks_[known->second];

  const bool counts = entry == nullptr || entry->idle.has_value();
  const bool is_held = entry != nullptr && !entry->holders.empty();
  const uint64_t others = role_holds - (is_held ? entry->bytes : 0);
  const bool within_share = others == 0 || Within(others, footprint, share_);
  const bool within_memory =
      role_holds == 0 || Within(in_use_, counts ? footprint : 0, memory_);
  if (!must_grant && !(within_share && within_memory)) return std::nullopt;

  Grant grant;
  if (entry == nullptr) {
    const std::optional<uint64_t> place =
        within_memory ? Place(footprint, gone) : std::nullopt;
    if (!place.has_value() && !must_grant) return std::nullopt;
    grant.block = next_block_++;
    grant.is_new = true;
    by_key_[key] = grant.block;
    entry = &blocks_[grant.block];
    entry->key = key;
    entry->bytes = footprint;
    entry->place = place;
  } else {
    grant.block = known->second;
    if (entry->idle.has_value()) {
      idle_.erase(*entry->idle);
      entry->idle.reset();
      idle_bytes_ -= entry->bytes;
    }
  }
  if (counts) in_use_ += entry->bytes;
  grant.lendable = within_share && entry->place.has_value();
  if (!is_held) roles_[key.role()] += entry->bytes;
  entry->holders[stream] = false;
  Holdings& holdings = streams_[stream];
  ++holdings.held;
  ++holdings.not_lent;
  return grant;
}

std::optional<uint64_t> BlockLedger::GetPlace(uint64_t block) const {
  const auto entry = blocks_.find(block);
  return entry == blocks_.end() ? std::nullopt : entry->second.place;
}

void BlockLedger::Lend(uint64_t stream, uint64_t block) {
  const auto entry = blocks_.find(block);
  if (entry == blocks_.end()) return;
  const auto holder = entry->second.holders.find(stream);
  if (holder == entry->second.holders.end() || holder->second) return;
  holder->second = true;
  --streams_[stream].not_lent;
}

BlockLedger::Fate BlockLedger::Release(uint64_t stream, uint64_t block) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return Fate::kStays;
  LedgerBlock& entry = found->second;
  const auto holder = entry.holders.find(stream);
  if (holder == entry.holders.end()) return Fate::kStays;
  Holdings& holdings = streams_[stream];
  if (!holder->second) --holdings.not_lent;
  if (--holdings.held == 0) streams_.erase(stream);
  entry.holders.erase(holder);
  if (!entry.holders.empty()) return Fate::kStays;
  const auto of_role = roles_.find(entry.key.role());
  of_role->second -= entry.bytes;
  if (of_role->second == 0) roles_.erase(of_role);
  return entry.in_work ? Fate::kUnwanted : Settle(block, &entry);
}

BlockLedger::Fate BlockLedger::OnBuilt(uint64_t block, bool ok) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return Fate::kStays;
  LedgerBlock& entry = found->second;
  entry.in_work = false;
  if (!ok) {
    entry.failed = true;
    by_key_.erase(entry.key);
  }
  return entry.holders.empty() ? Settle(block, &entry) : Fate::kStays;
}

bool BlockLedger::IsHeld(uint64_t block) const {
  const auto entry = blocks_.find(block);
  return entry != blocks_.end() && !entry->second.holders.empty();
}

std::optional<uint64_t> BlockLedger::Place(uint64_t bytes,
                                           std::vector<uint64_t>* gone) {
  // Evicts idle blocks only if that may help.
  if (!Within(bytes, 0, arena_.free() + idle_bytes_)) return std::nullopt;
  std::optional<uint64_t> place = arena_.Allocate(bytes);
  while (!place.has_value() && !idle_.empty()) {
    const uint64_t oldest = idle_.front();
    gone->push_back(oldest);
    Forget(oldest);
    place = arena_.Allocate(bytes);
  }
  return place;
}

BlockLedger::Fate BlockLedger::Settle(uint64_t number, LedgerBlock* block) {
  in_use_ -= block->bytes;
  if (block->place.has_value() && !block->failed) {
    idle_bytes_ += block->bytes;
    block->idle = idle_.insert(idle_.end(), number);
    return Fate::kStays;
  }
  Forget(number);
  return Fate::kGone;
}

void BlockLedger::Forget(uint64_t number) {
  const auto found = blocks_.find(number);
  LedgerBlock& entry = found->second;
  if (entry.place.has_value()) arena_.Free(*entry.place);
  if (entry.idle.has_value()) {
    idle_.erase(*entry.idle);
    idle_bytes_ -= entry.bytes;
  }
  if (!entry.failed) by_key_.erase(entry.key);
  blocks_.erase(found);
}

}  // namespace ballast
