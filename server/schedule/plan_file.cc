#include "server/schedule/plan_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/sample/data_fault.h"

namespace ballast {

namespace {

// As batch.global. Bounds the memory of checking a step.
constexpr uint64_t kMaxSamplesOfAStep = uint64_t{1} << 24;
// Keys of the fingerprint have ten digits of a step.
constexpr int64_t kMaxStep = 9999999999;

// The samples of a source by their keys: the names that messages give them, and
// for members what follows the file.
class KeyTable {
 public:
  static absl::StatusOr<KeyTable> Make(const PlanSource& source) {
    KeyTable table;
    ReadParts text;
    text.images = false;
    for (uint64_t i = 0; i < source.samples->index().size(); ++i) {
      BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> read,
                               source.samples->Read(i, text));
      // A sample with a data fault has no name to be found by.
      if (!read.ok()) continue;
      const absl::string_view name = read->name;
      table.places_.push_back({Hash(name), i});
      const size_t at = name.rfind(": ");
      if (at != absl::string_view::npos) {
        table.places_.push_back({Hash(name.substr(at + 2)), i});
      }
    }
    std::sort(table.places_.begin(), table.places_.end());
    return table;
  }

  // The sample with the key. Errors: INVALID_ARGUMENT (none, several).
  absl::StatusOr<uint64_t> Find(absl::string_view key) const {
    const uint64_t hash = Hash(key);
    const auto found = std::lower_bound(places_.begin(), places_.end(),
                                        std::make_pair(hash, uint64_t{0}));
    if (found == places_.end() || found->first != hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("no sample has the key ", Printable(key),
                       "; wanted one such as \"docs-000003.tar: 000123\", "
                       "\"chat.jsonl:17\" or the number of a sample"));
    }
    const auto next = found + 1;
    if (next != places_.end() && next->first == hash &&
        next->second != found->second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "several samples have the key ", Printable(key), ", numbers ",
          found->second, " and ", next->second,
          "; wanted the file before it, such as \"docs-000003.tar: 000123\""));
    }
    return found->second;
  }

 private:
  static uint64_t Hash(absl::string_view text) {
    return XXH3_64bits(text.data(), text.size());
  }

  std::vector<std::pair<uint64_t, uint64_t>> places_;  // hash, number
};

// Checks the rows of one step after another.
class StepChecker {
 public:
  struct Row {
    uint64_t number = 0;
    int64_t step = 0;
    int64_t micro_batch = 0;
    int64_t repeat = 0;
    PlanRow row;
  };

  absl::Status Add(const Row& next) {
    if (starts_.empty()) {
      if (next.step < 0 || next.step > kMaxStep) {
        return Wrong(next.number, "step is ", next.step, "; wanted 0 to ",
                     kMaxStep);
      }
      first_step_ = step_ = next.step;
      Begin(next);
    } else if (next.step != step_) {
      BALLAST_RETURN_IF_ERROR(End(next.number - 1));
      if (next.step != step_ + 1 || next.step > kMaxStep) {
        return Wrong(next.number, "step is ", next.step, " after ", step_,
                     "; wanted ", step_, " or ", step_ + 1,
                     ", since rows are in the order of steps, and each step "
                     "has rows");
      }
      step_ = next.step;
      Begin(next);
    }
    if (next.number - starts_.back() >= kMaxSamplesOfAStep) {
      return Wrong(next.number, "step ", step_, " has more than ",
                   kMaxSamplesOfAStep, " rows");
    }
    const bool has_pack = next.row.pack != PlanRow::kNoPack;
    if (has_pack != packed_.back()) {
      return Wrong(next.number, "pack is ",
                   has_pack ? absl::StrCat(next.row.pack) : "-1", " in step ",
                   step_, ", whose first row has ",
                   has_pack ? "none" : "a pack",
                   "; wanted packs in all rows of a step, or in none");
    }
    const auto [first, is_new] = seen_.try_emplace(
        std::make_tuple(next.row.source, next.row.ordinal, next.repeat),
        next.number);
    if (!is_new) {
      return Wrong(next.number, "sample ", next.row.ordinal,
                   " of its source is in step ", step_, " for a second time, ",
                   "first in row ", first->second,
                   "; wanted it once, or each time with another number in "
                   "the column repeat");
    }
    return has_pack ? AddToPack(next) : AddToMicroBatch(next);
  }

  // Ends the last step; `last` is its last row.
  absl::Status End(uint64_t last) {
    if (!packed_.back()) {
      if (count_ == size_) return absl::OkStatus();
      return UnequalMicroBatches(last);
    }
    int64_t before = 0;
    for (uint32_t p = 0; p < packs_.size(); ++p) {
      const auto found = packs_.find(p);
      if (found == packs_.end()) {
        return Wrong(last, "step ", step_, " ends without pack ", p,
                     " and has ", packs_.size(),
                     " packs; wanted packs that are numbered from 0 without a "
                     "gap");
      }
      if (found->second < before) {
        return Wrong(last, "pack ", p, " of step ", step_,
                     " is in micro-batch ", found->second,
                     ", and the pack before it in ", before,
                     "; wanted packs in the order of micro-batches");
      }
      before = found->second;
    }
    return absl::OkStatus();
  }

  uint64_t first_step() const { return first_step_; }
  std::vector<uint64_t>& starts() { return starts_; }
  std::vector<bool>& packed() { return packed_; }

 private:
  template <typename... Parts>
  static absl::Status Wrong(uint64_t number, const Parts&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("row ", number, ": ", parts...));
  }

  absl::Status UnequalMicroBatches(uint64_t number) const {
    return Wrong(number, "micro-batch ", micro_batch_, " of step ", step_,
                 " has ", count_, " samples, and the first ", size_,
                 "; wanted micro-batches of one size in a step, or packs: "
                 "batch.micro divides steps without packs");
  }

  void Begin(const Row& row) {
    starts_.push_back(row.number);
    packed_.push_back(row.row.pack != PlanRow::kNoPack);
    seen_.clear();
    packs_.clear();
    micro_batch_ = 0;
    count_ = size_ = 0;
  }

  absl::Status AddToPack(const Row& next) {
    const auto [found, is_new] =
        packs_.try_emplace(next.row.pack, next.micro_batch);
    if (found->second == next.micro_batch && next.micro_batch >= 0) {
      return absl::OkStatus();
    }
    return Wrong(next.number, "pack ", next.row.pack, " of step ", step_,
                 " is in micro-batch ", next.micro_batch,
                 is_new ? "" : absl::StrCat(" and in ", found->second),
                 "; wanted one micro-batch for each pack, from 0");
  }

  absl::Status AddToMicroBatch(const Row& next) {
    if (next.micro_batch == micro_batch_ + 1 && count_ > 0) {
      if (micro_batch_ == 0) size_ = count_;
      if (count_ != size_) return UnequalMicroBatches(next.number);
      micro_batch_ = next.micro_batch;
      count_ = 0;
    } else if (next.micro_batch != micro_batch_) {
      return Wrong(next.number, "micro_batch is ", next.micro_batch,
                   " in step ", step_, "; wanted ", micro_batch_,
                   count_ > 0 ? absl::StrCat(" or ", micro_batch_ + 1) : "",
                   ", since rows without packs are in the order of "
                   "micro-batches");
    }
    ++count_;
    if (micro_batch_ == 0) size_ = count_;
    return absl::OkStatus();
  }

  uint64_t first_step_ = 0;
  int64_t step_ = 0;
  std::vector<uint64_t> starts_;
  std::vector<bool> packed_;  // by step
  // Of the present step.
  absl::flat_hash_map<std::tuple<uint32_t, uint64_t, int64_t>, uint64_t> seen_;
  absl::flat_hash_map<uint32_t, int64_t> packs_;  // their micro-batches
  int64_t micro_batch_ = 0;
  uint64_t count_ = 0;  // rows of micro_batch_
  uint64_t size_ = 0;   // rows of micro-batch 0
};

// Decoded rows of a row group.
class PlanPart final : public ParquetPart {
 public:
  explicit PlanPart(std::vector<PlanRow> rows) : rows_(std::move(rows)) {}
  uint64_t bytes() const override {
    return sizeof(*this) + rows_.capacity() * sizeof(PlanRow);
  }
  const std::vector<PlanRow>& rows() const { return rows_; }

 private:
  const std::vector<PlanRow> rows_;
};

class PlanFile final : public PlanRows {
 public:
  PlanFile(std::string path, std::vector<PlanSource> sources)
      : path_(std::move(path)), sources_(std::move(sources)) {}
  ~PlanFile() override { cache_->DropSource(this); }

  absl::Status Open() {
    BALLAST_ASSIGN_OR_RETURN(table_, PlanTable::Open(path_));
    const absl::Status status = Check();
    return status.ok() || absl::StartsWith(status.message(), path_)
               ? status
               : Annotate(status, path_);
  }

  uint64_t first_step() const override { return first_step_; }
  absl::Span<const uint64_t> starts() const override { return starts_; }
  bool HasPacks(uint64_t step) const override {
    return step >= first_step_ && step - first_step_ < packed_.size() &&
           packed_[step - first_step_];
  }
  const std::string& digest() const override { return digest_; }

  absl::StatusOr<std::vector<PlanRow>> Read(uint64_t first,
                                            uint64_t count) const override {
    std::vector<PlanRow> rows;
    rows.reserve(count);
    for (size_t g = FindGroup(first); rows.size() < count; ++g) {
      BALLAST_ASSIGN_OR_RETURN(const auto part, GetGroup(g));
      const uint64_t from = first + rows.size() - first_rows_[g];
      const uint64_t to =
          std::min<uint64_t>(part->rows().size(), from + count - rows.size());
      rows.insert(rows.end(), part->rows().begin() + from,
                  part->rows().begin() + to);
    }
    return rows;
  }

  absl::StatusOr<std::vector<uint64_t>> CountSources(
      uint64_t rows) const override {
    if (rows == starts_.back()) return counts_.back();
    const size_t group = FindGroup(rows);
    std::vector<uint64_t> counts = counts_[group];
    BALLAST_ASSIGN_OR_RETURN(const auto part, GetGroup(group));
    for (uint64_t i = 0; i < rows - first_rows_[group]; ++i) {
      ++counts[part->rows()[i].source];
    }
    return counts;
  }

 private:
  // The row group that holds a row.
  size_t FindGroup(uint64_t row) const {
    return std::upper_bound(first_rows_.begin(), first_rows_.end(), row) -
           first_rows_.begin() - 1;
  }

  static uint64_t Checksum(const std::vector<PlanRow>& rows) {
    static_assert(std::has_unique_object_representations_v<PlanRow>);
    return XXH3_64bits(rows.data(), rows.size() * sizeof(PlanRow));
  }

  // Reads all rows once.
  absl::Status Check() {
    StepChecker checker;
    absl::flat_hash_map<std::string, uint64_t> seen;  // sources, as they occur
    std::vector<std::string> names;
    XXH3_state_t* const state = XXH3_createState();
    XXH3_128bits_reset(state);
    const absl::Status status = [&]() -> absl::Status {
      counts_.emplace_back(sources_.size(), 0);
      for (size_t g = 0; g < table_->group_rows().size(); ++g) {
        const uint64_t first = rows_;
        first_rows_.push_back(first);
        BALLAST_ASSIGN_OR_RETURN(const PlanColumns columns, table_->Read(g));
        BALLAST_RETURN_IF_ERROR(FindKeys(columns, first));
        BALLAST_ASSIGN_OR_RETURN(const std::vector<PlanRow> rows,
                                 Resolve(columns, first));
        std::vector<uint64_t> numbers;  // of `names`, by the group's
        for (const std::string& name : columns.names) {
          const auto found = seen.try_emplace(name, names.size());
          if (found.second) names.push_back(name);
          numbers.push_back(found.first->second);
        }
        std::vector<uint64_t> hashed;
        hashed.reserve(rows.size() * 4);
        std::vector<uint64_t> counts = counts_.back();
        for (size_t i = 0; i < rows.size(); ++i) {
          BALLAST_RETURN_IF_ERROR(checker.Add(
              {first + i, columns.step[i], columns.micro_batch[i],
               columns.repeat.empty() ? 0 : columns.repeat[i], rows[i]}));
          hashed.insert(hashed.end(), {static_cast<uint64_t>(columns.step[i]),
                                       numbers[columns.source[i]],
                                       rows[i].ordinal, rows[i].pack});
          if (!columns.check.empty()) {
            BALLAST_RETURN_IF_ERROR(
                CheckText(rows[i], columns.check[i], first + i));
          }
          // Without epochs the digest is that of releases before epochs.
          if (rows[i].epoch != 0) {
            hashed.insert(hashed.end(), {UINT64_MAX, rows[i].epoch});
          }
          ++counts[rows[i].source];
        }
        XXH3_128bits_update(state, hashed.data(),
                            hashed.size() * sizeof(uint64_t));
        checksums_.push_back(Checksum(rows));
        counts_.push_back(std::move(counts));
        rows_ += rows.size();
      }
      if (rows_ == 0) return absl::InvalidArgumentError("has no rows");
      return checker.End(rows_ - 1);
    }();
    for (const std::string& name : names) {
      XXH3_128bits_update(state, name.data(), name.size() + 1);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    digest_ = absl::StrFormat("%016x%016x", hash.high64, hash.low64);
    BALLAST_RETURN_IF_ERROR(status);
    first_step_ = checker.first_step();
    starts_ = std::move(checker.starts());
    starts_.push_back(rows_);
    packed_ = std::move(checker.packed());
    return absl::OkStatus();
  }

  // Compares the sample of a row with the `check` of the row's writer.
  absl::Status CheckText(const PlanRow& row, int64_t check,
                         uint64_t number) const {
    if (check == 0) return absl::OkStatus();
    const PlanSource& source = sources_[row.source];
    BALLAST_ASSIGN_OR_RETURN(const IndexedSample sample,
                             source.samples->index().sample(row.ordinal));
    if (sample.text_check == 0 || sample.text_check == check) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "row ", number, ": sample ", row.ordinal, " of source ", source.name,
        " has another text than when the row was written: its index has "
        "numbered other samples since, or the data have changed; write the "
        "plan again with this index"));
  }

  // The numbers in config.sources of the sources that `columns` names.
  absl::StatusOr<std::vector<uint32_t>> FindSources(const PlanColumns& columns,
                                                    uint64_t first) const {
    std::vector<uint32_t> numbers;
    for (size_t n = 0; n < columns.names.size(); ++n) {
      const auto found = std::find_if(sources_.begin(), sources_.end(),
                                      [&](const PlanSource& each) {
                                        return each.name == columns.names[n];
                                      });
      if (found == sources_.end() || !found->is_train) {
        const auto at =
            std::find(columns.source.begin(), columns.source.end(), n);
        return absl::InvalidArgumentError(absl::StrCat(
            "row ", first + (at - columns.source.begin()), ": source is ",
            Printable(columns.names[n]),
            found == sources_.end() ? ", which sources does not have"
                                    : ", which is of another split than train",
            "; wanted the name of a source of split train"));
      }
      numbers.push_back(found - sources_.begin());
    }
    return numbers;
  }

  // Makes the tables of the sources whose samples are named by keys.
  absl::Status FindKeys(const PlanColumns& columns, uint64_t first) {
    if (columns.key.empty()) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                             FindSources(columns, first));
    for (const uint32_t source : numbers) {
      if (keys_.count(source) != 0) continue;
      BALLAST_ASSIGN_OR_RETURN(keys_[source], KeyTable::Make(sources_[source]));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<PlanRow>> Resolve(const PlanColumns& columns,
                                               uint64_t first) const {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                             FindSources(columns, first));
    std::vector<uint64_t> sizes;
    for (const uint32_t source : numbers) {
      sizes.push_back(sources_[source].samples->index().size());
    }
    std::vector<PlanRow> rows(columns.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      PlanRow& row = rows[i];
      row.source = numbers[columns.source[i]];
      const std::string& name = columns.names[columns.source[i]];
      const int64_t pack = columns.pack[i];
      if (pack < -1 || pack >= static_cast<int64_t>(kMaxSamplesOfAStep)) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", first + i, ": pack is ", pack,
                         "; wanted a number from 0, or -1: none"));
      }
      if (pack >= 0) row.pack = static_cast<uint32_t>(pack);
      if (!columns.epoch.empty()) {
        if (columns.epoch[i] < 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("row ", first + i, ": epoch is ", columns.epoch[i],
                           "; wanted a number from 0"));
        }
        row.epoch = static_cast<uint64_t>(columns.epoch[i]);
      }
      if (!columns.key.empty()) {
        const auto table = keys_.find(row.source);
        if (table == keys_.end()) {
          return absl::DataLossError("it has changed since it was opened");
        }
        const auto found = table->second.Find(columns.key[i]);
        if (!found.ok()) {
          return Annotate(found.status(),
                          absl::StrCat("row ", first + i, ": source ", name));
        }
        row.ordinal = *found;
        continue;
      }
      const int64_t sample = columns.sample[i];
      const uint64_t size = sizes[columns.source[i]];
      if (sample < 0 || static_cast<uint64_t>(sample) >= size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "row ", first + i, ": sample is ", sample, "; wanted 0 to ",
            size - 1, ", a number in the index of source ", name,
            " (another index than the plan was made with?)"));
      }
      row.ordinal = static_cast<uint64_t>(sample);
    }
    return rows;
  }

  absl::StatusOr<std::shared_ptr<const PlanPart>> GetGroup(size_t group) const {
    const ParquetPartKey key = {this, 0, group + 1, 0};
    const auto load = [&]() -> absl::StatusOr<RowGroupCache::Ptr> {
      absl::StatusOr<PlanColumns> columns = table_->Read(group);
      if (columns.ok()) {
        auto rows = Resolve(*columns, first_rows_[group]);
        if (rows.ok() && Checksum(*rows) == checksums_[group]) {
          return std::make_shared<const PlanPart>(*std::move(rows));
        }
      } else if (absl::IsUnavailable(columns.status()) ||
                 absl::IsResourceExhausted(columns.status())) {
        return columns.status();
      }
      return absl::DataLossError(absl::StrCat(
          path_, ": row group ", group,
          " has changed since the plan file was opened; restore the file, or "
          "restart all servers and ranks with the new one"));
    };
    BALLAST_ASSIGN_OR_RETURN(const RowGroupCache::Ptr part,
                             cache_->Get(key, load));
    return std::static_pointer_cast<const PlanPart>(part);
  }

  const std::string path_;
  const std::vector<PlanSource> sources_;
  const std::shared_ptr<RowGroupCache> cache_ = RowGroupCache::OfProcess();
  std::unique_ptr<PlanTable> table_;
  std::map<uint32_t, KeyTable> keys_;  // by source
  uint64_t rows_ = 0;
  uint64_t first_step_ = 0;
  std::vector<uint64_t> starts_;
  std::vector<bool> packed_;
  std::string digest_;
  // By row group; the counts cover the rows before it, the last ones all rows.
  std::vector<uint64_t> first_rows_;
  std::vector<uint64_t> checksums_;
  std::vector<std::vector<uint64_t>> counts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const PlanRows>> OpenPlanFile(
    const std::string& path, std::vector<PlanSource> sources) {
  auto file = std::make_unique<PlanFile>(path, std::move(sources));
  BALLAST_RETURN_IF_ERROR(file->Open());
  return std::unique_ptr<const PlanRows>(std::move(file));
}

namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  char magic[8];
  uint64_t count;
  uint64_t checksum;
};

constexpr char kMagic[] = "BLLSTEPS";

using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

uint64_t Checksum(const std::vector<uint64_t>& starts) {
  return XXH3_64bits(starts.data(), starts.size() * sizeof(uint64_t));
}

}  // namespace

std::vector<uint64_t> LoadStepTable(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  const Stream file(std::fopen(path.c_str(), "rb"), &std::fclose);
  Header header;
  if (error || file == nullptr ||
      std::fread(&header, sizeof header, 1, file.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 ||
      header.count == 0 ||
      header.count != (bytes - sizeof header) / sizeof(uint64_t)) {
    return {};
  }
  std::vector<uint64_t> starts(header.count);
  if (std::fread(starts.data(), sizeof(uint64_t), starts.size(), file.get()) !=
          starts.size() ||
      Checksum(starts) != header.checksum || starts[0] != 0 ||
      std::adjacent_find(starts.begin(), starts.end(),
                         [](uint64_t a, uint64_t b) { return a >= b; }) !=
          starts.end()) {
    return {};
  }
  return starts;
}

absl::Status SaveStepTable(const std::string& path,
                           const std::vector<uint64_t>& starts) {
  const std::string part = absl::StrCat(path, ".part.", getpid());
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.count = starts.size();
  header.checksum = Checksum(starts);
  Stream file(std::fopen(part.c_str(), "wb"), &std::fclose);
  bool is_written = file != nullptr &&
                    std::fwrite(&header, sizeof header, 1, file.get()) == 1 &&
                    std::fwrite(starts.data(), sizeof(uint64_t), starts.size(),
                                file.get()) == starts.size() &&
                    std::fflush(file.get()) == 0;
  const int error = errno;
  file.reset();
  if (is_written && std::rename(part.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int cause = is_written ? errno : error;
  std::remove(part.c_str());
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(cause)));
}

}  // namespace ballast
