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

BlockLedger::BlockLedger(uint64_t memory, uint32_t roles, uint64_t begin,
                         uint64_t end)
    : memory_(memory),
      lent_share_(memory / std::max(roles, 1u)),
      arena_(begin, end) {}

void BlockLedger::OpenStream(const RoleKey& role) {
  open_roles_ += roles_[role].streams++ == 0;
}

void BlockLedger::CloseStream(const RoleKey& role) {
  const auto found = roles_.find(role);
  if (--found->second.streams > 0) return;
  --open_roles_;
  ForgetIfEmpty(found);
}

uint64_t BlockLedger::share() const {
  return memory_ / std::max<uint64_t>(open_roles_, 1);
}

bool BlockLedger::HasRoom(uint64_t bytes) const {
  return Within(held_, Footprint(bytes), memory_);
}

std::optional<RoleKey> BlockLedger::AboveShare(
    const RoleKey& role, uint64_t bytes,
    const std::set<RoleKey>& except) const {
  const uint64_t footprint = Footprint(bytes);
  const auto own = roles_.find(role);
  const uint64_t holds = own == roles_.end() ? 0 : own->second.held;
  if (holds != 0 && !Within(holds, footprint, share())) return std::nullopt;
  std::optional<RoleKey> above;
  uint64_t most = share();
  for (const auto& [key, holdings] : roles_) {
    if (holdings.held <= most || except.contains(key)) continue;
    most = holdings.held;
    above = key;
  }
  return above;
}

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
  const uint64_t role_holds =
      of_role == roles_.end() ? 0 : of_role->second.held;
  const auto known = by_key_.find(key);
  LedgerBlock* entry =
      known == by_key_.end() ? nullptr : &blocks_[known->second];

  const bool counts = entry == nullptr || entry->idle.has_value();
  const bool is_held = entry != nullptr && !entry->holders.empty();
  const uint64_t others = role_holds - (is_held ? entry->bytes : 0);
  const bool within_share = others == 0 || Within(others, footprint, share());
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
  if (!is_held) {
    roles_[key.role()].held += entry->bytes;
    held_ += entry->bytes;
  }
  entry->holders[stream] = Hold::kHeld;
  Holdings& holdings = streams_[stream];
  ++holdings.held;
  ++holdings.not_lent;
  return grant;
}

std::optional<uint64_t> BlockLedger::GetPlace(uint64_t block) const {
  const auto entry = blocks_.find(block);
  return entry == blocks_.end() ? std::nullopt : entry->second.place;
}

bool BlockLedger::Promise(uint64_t stream, uint64_t block) {
  LedgerBlock& entry = blocks_.at(block);
  Hold& hold = entry.holders.at(stream);
  if (!entry.place.has_value()) return false;
  if (entry.promised == 0) {
    uint64_t& promised = roles_.at(entry.key.role()).promised;
    if (promised != 0 && !Within(promised, entry.bytes, lent_share_)) {
      return false;
    }
    promised += entry.bytes;
  }
  if (hold == Hold::kHeld) {
    hold = Hold::kPromised;
    ++entry.promised;
  }
  return true;
}

void BlockLedger::Lend(uint64_t stream, uint64_t block) {
  const auto entry = blocks_.find(block);
  if (entry == blocks_.end()) return;
  const auto holder = entry->second.holders.find(stream);
  if (holder == entry->second.holders.end() ||
      holder->second != Hold::kPromised) {
    return;
  }
  holder->second = Hold::kLent;
  --streams_[stream].not_lent;
}

BlockLedger::Fate BlockLedger::Release(uint64_t stream, uint64_t block) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return Fate::kStays;
  LedgerBlock& entry = found->second;
  const auto holder = entry.holders.find(stream);
  if (holder == entry.holders.end()) return Fate::kStays;
  Holdings& holdings = streams_[stream];
  const auto of_role = roles_.find(entry.key.role());
  if (holder->second != Hold::kLent) --holdings.not_lent;
  if (--holdings.held == 0) streams_.erase(stream);
  if (holder->second != Hold::kHeld && --entry.promised == 0) {
    of_role->second.promised -= entry.bytes;
  }
  entry.holders.erase(holder);
  if (!entry.holders.empty()) return Fate::kStays;
  of_role->second.held -= entry.bytes;
  held_ -= entry.bytes;
  ForgetIfEmpty(of_role);
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

void BlockLedger::ForgetIfEmpty(
    std::map<RoleKey, RoleHoldings>::iterator role) {
  if (role->second.streams == 0 && role->second.held == 0) roles_.erase(role);
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
