#include "server/config/config_validate.h"

#include <sys/un.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/schedule/module.h"
#include "server/files/path_pattern.h"
#include "server/settings/config_keys.h"
#include "server/settings/source_fields.h"

namespace ballast {
namespace {

absl::Status Fault(absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("found ", Shown(text), "; wanted ", wanted));
}

// Checks who reaches an address of TCP; `with_tls` is what is wanted of one
// that other machines reach without TLS.
absl::Status CheckReach(const NetAddress& address, absl::string_view text,
                        const v1::Security& security,
                        absl::string_view with_tls) {
  if (address.IsLocal() || security.insecure()) return absl::OkStatus();
  if (!security.has_tls()) return Fault(text, with_tls);
  if (security.tls().client_ca().empty() && security.tokens_file().empty()) {
    return Fault(
        text,
        "security.tls.client_ca or security.tokens_file, since other "
        "machines reach it; security.insecure: true if all of them may "
        "read the data");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NetAddress> ParseConfiguredAddress(absl::string_view text) {
  if (absl::StartsWith(text, "unix:") &&
      (!absl::StartsWith(UnixPath(text), "/") || !ParseNetAddress(text).ok())) {
    return Fault(text,
                 absl::StrCat("unix: and an absolute path of at most ",
                              sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  absl::StatusOr<NetAddress> address = ParseNetAddress(text);
  if (address.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", Shown(text), "; ", std::string(address.status().message())));
}

absl::Status CheckExposure(const NetAddress& address, absl::string_view text,
                           const v1::Security& security) {
  if (address.is_unix()) return absl::OkStatus();
  if (!security.has_tls() && !security.tokens_file().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", Shown(text),
        " with security.tokens_file and without security.tls, which would send "
        "tokens in plain text; wanted a Unix socket, or security.tls"));
  }
  return CheckReach(
      address, text, security,
      "a Unix socket, a loopback address, or security.tls, since other "
      "machines reach it; security.insecure: true if all of them may read the "
      "data");
}

absl::Status CheckHttpExposure(const NetAddress& address,
                               absl::string_view text,
                               const v1::Security& security) {
  if (address.is_unix()) {
    return Fault(text,
                 "host:port: browsers cannot ask a Unix socket; 127.0.0.1:PORT "
                 "keeps it on this machine");
  }
  return CheckReach(
      address, text, security,
      "a loopback address and `ssh -L`, or security.tls, since other machines "
      "reach it; security.insecure: true if everyone on the network path may "
      "read it");
}

bool IsJobName(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '-';
}

// The checks of one source, whose key is `key`, such as "sources[0]".
class SourceCheck {
 public:
  SourceCheck(const v1::Source& source, std::string key, KeyReport* report)
      : source_(source), key_(std::move(key)), report_(*report) {}

  void Run() {
    CheckName();
    if (!IsSound("format")) return;
    CheckPath();
    for (int i = 0; i < source_.media_root_size(); ++i) {
      const std::string item = ItemKey("media_root", i);
      const bool in_list = report_.Has(ChildKey(key_, item));
      CheckUrl(in_list ? item : "media_root", source_.media_root(i));
    }
    if (IsSound("index") && IsStoreUrl(source_.index())) {
      report_.AddFault(ChildKey(key_, "index"),
                       "found a store; wanted a file on a disk, which servers "
                       "map into memory");
    }
    if (const size_t star = source_.index().find('*');
        IsSound("index") && star != std::string::npos &&
        (star != source_.index().rfind('*') ||
         source_.index().find('/', star) != std::string::npos)) {
      report_.AddFault(ChildKey(key_, "index"),
                       absl::StrCat("found ", Shown(source_.index()),
                                    "; wanted at most one *, in the name of "
                                    "the file"));
    }
    if (IsSound("recipe") && IsStoreUrl(source_.recipe())) {
      report_.AddFault(ChildKey(key_, "recipe"),
                       "found a store; wanted a Python file on a disk");
    }
    const v1::Source::Images& images = source_.images();
    CheckOrder("lengths", source_.lengths().min(), source_.lengths().max());
    CheckOrder("images", images.min(), images.max());
    CheckOrder("images.pixels", images.pixels().min(), images.pixels().max());
    CheckParquet();
    CheckForm();
  }

 private:
  // Returns whether the file contains the key and no fault was found in it so
  // far.
  bool IsSound(absl::string_view name) const {
    const std::string key = ChildKey(key_, name);
    return report_.Has(key) && !report_.IsFaulty(key);
  }

  // Of two keys a file has one.
  void Refuse(absl::string_view name, absl::string_view other) {
    if (!IsSound(name) || !IsSound(other)) return;
    report_.AddFault(
        ChildKey(key_, name),
        absl::StrCat("found with ", other, "; wanted one of the two"));
  }

  void CheckName() {
    const std::string& name = source_.name();
    if (!IsSound("name") ||
        std::all_of(name.begin(), name.end(), IsNameCharacter)) {
      return;
    }
    report_.AddFault(ChildKey(key_, "name"),
                     absl::StrCat("found ", Shown(name),
                                  "; wanted only letters, digits, _ and -"));
  }

  void CheckPath() {
    if (!IsSound("path")) return;
    if (source_.format() == v1::Source::FORMAT_ENERGON) {
      // One path, as it is written.
      return CheckUrl("path", source_.path());
    }
    const auto names = ExpandBraces(source_.path());
    if (names.ok()) {
      if (!names->empty()) CheckUrl("path", names->front());
      return;
    }
    report_.AddFault(
        ChildKey(key_, "path"),
        absl::StrCat("found ", Shown(source_.path()), "; wanted a path: ",
                     std::string(names.status().message())));
  }

  // The message alone: a URL may hold a password.
  void CheckUrl(absl::string_view name, const std::string& path) {
    if (!IsSound(name) || !IsStoreUrl(path)) return;
    const absl::Status parsed = ParseStoreUrl(path).status();
    if (parsed.ok()) return;
    report_.AddFault(ChildKey(key_, name), std::string(parsed.message()));
  }

  void CheckForm() {
    for (const char* other : {"recipe", "preset", "columns", "pairs"}) {
      Refuse("form", other);
    }
    if (source_.format() == v1::Source::FORMAT_CSV && !IsSound("form") &&
        !report_.IsFaulty(ChildKey(key_, "form")) && !IsSound("recipe")) {
      report_.AddFault(ChildKey(key_, "format"),
                       "found csv without form; wanted form, which says what "
                       "its columns are, as {images: file, text: caption}");
    }
  }

  void CheckParquet() {
    Refuse("preset", "columns");
    // A recipe has all columns.
    Refuse("preset", "recipe");
    Refuse("columns", "recipe");
    if (IsSound("columns")) CheckColumns();
    for (int i = 0; i < source_.filters_size(); ++i) {
      const std::string key = ItemKey(ChildKey(key_, "filters"), i);
      if (report_.IsFaulty(key)) continue;
      const auto filter = ParseRowFilter(source_.filters(i));
      if (filter.ok()) continue;
      report_.AddFault(key, std::string(filter.status().message()));
    }
  }

  void CheckColumns() {
    Refuse("columns.image", "columns.images");
    Refuse("columns.audio", "columns.audios");
    int texts = 0;
    for (const char* name : {"conversations", "messages", "texts"}) {
      if (report_.Has(ChildKey(ChildKey(key_, "columns"), name))) ++texts;
    }
    if (texts == 1) return;
    report_.AddFault(
        ChildKey(key_, "columns"),
        absl::StrCat("found ", texts, " columns of text; wanted one of ",
                     "conversations, messages, texts"));
  }

  void CheckOrder(absl::string_view section, uint32_t min, uint32_t max) {
    const std::string low = absl::StrCat(section, ".min");
    const std::string high = absl::StrCat(section, ".max");
    if (!IsSound(low) || !IsSound(high) || min <= max) return;
    report_.AddFault(
        ChildKey(key_, low),
        absl::StrCat("found ", min, "; wanted at most ", high, ", ", max));
  }

  const v1::Source& source_;
  const std::string key_;
  KeyReport& report_;
};

// Checks the step of entry `item` and raises `before`, the step of the previous
// entry, to it.
void CheckStep(const std::string& item, uint64_t step, uint64_t* before,
               KeyReport* report) {
  const std::string key = ChildKey(item, "step");
  if (report->IsFaulty(key)) return;
  if (step <= *before) {
    return report->AddFault(
        key,
        absl::StrCat("found ", step,
                     "; wanted a step after the preceding entry's, ", *before));
  }
  *before = step;
}

// Weights count with six decimals (server/schedule/sample_order.h): a smaller
// number would be drawn more often than it says.
void CheckDecimals(const std::string& key, double weight, KeyReport* report) {
  const double counted = std::max(1.0, std::round(weight * 1e6)) / 1e6;
  if (weight == 0 || std::abs(counted - weight) <= weight / 100) return;
  report->AddFault(
      key, absl::StrCat("found ", weight, ", which would count as ", counted,
                        ": weights have six decimals; wanted 0 or a larger "
                        "number, as 1000 times each weight of the split"));
}

// Checks the names of one entry, and sets `weights`, of the sources of train,
// to what it gives.
void CheckWeights(const v1::Config& config,
                  const v1::Order::MixtureChange& change,
                  const std::string& item,
                  absl::flat_hash_map<std::string, double>* weights,
                  KeyReport* report) {
  const std::string key = ChildKey(item, "weights");
  if (report->IsFaulty(key)) return;
  for (const auto& [name, weight] : change.weights()) {
    const std::string entry = ChildKey(key, Shown(name));
    if (report->IsFaulty(entry)) continue;
    const auto source = std::find_if(
        config.sources().begin(), config.sources().end(),
        [&name = name](const v1::Source& s) { return s.name() == name; });
    if (source == config.sources().end()) {
      report->AddFault(entry,
                       "found no source of that name; wanted one of "
                       "sources[].name");
    } else if (source->split() != v1::SPLIT_TRAIN) {
      report->AddFault(entry,
                       "found a source of another split; wanted one with "
                       "`split: train`: only its weights change");
    } else {
      (*weights)[name] = weight;
      CheckDecimals(entry, weight, report);
    }
  }
  const bool drawn =
      std::any_of(weights->begin(), weights->end(),
                  [](const auto& entry) { return entry.second > 0; });
  if (!drawn && !report->HasFaultWithin(key)) {
    report->AddFault(key,
                     "found no source with a weight above 0 from this step on; "
                     "wanted one");
  }
}

// Each split draws from some source at every step, and each source is drawn
// from at some step, as often as its weight says.
void CheckSourceWeights(const v1::Config& config, KeyReport* report) {
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ChildKey(ItemKey("sources", i), "weight");
    if (report->IsFaulty(key) || report->IsFaulty(ItemKey("sources", i))) {
      continue;
    }
    if (source.weight() != 0) {
      CheckDecimals(key, source.weight(), report);
      continue;
    }
    if (source.split() != v1::SPLIT_TRAIN) {
      report->AddFault(key,
                       "found 0 with a split other than train; wanted a "
                       "weight above 0");
      continue;
    }
    const auto& changes = config.order().mixture_changes();
    const bool added =
        std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
          const auto found = change.weights().find(source.name());
          return found != change.weights().end() && found->second > 0;
        });
    if (!added && !report->HasFaultWithin("order.mixture_changes")) {
      report->AddFault(key,
                       "found 0; wanted a weight above 0, here or in "
                       "order.mixture_changes");
    }
  }
  const auto drawn = [](const v1::Source& source) {
    return source.split() == v1::SPLIT_TRAIN && source.weight() > 0;
  };
  const auto trained = [](const v1::Source& source) {
    return source.split() == v1::SPLIT_TRAIN;
  };
  if (!report->HasFaultWithin("sources") &&
      std::any_of(config.sources().begin(), config.sources().end(), trained) &&
      std::none_of(config.sources().begin(), config.sources().end(), drawn)) {
    report->AddFault("sources",
                     "found no source of train with a weight above 0; wanted "
                     "one for step 0");
  }
}

// Checks the endpoint in `section`, "storage.s3".
void CheckEndpoint(const std::string& section, const std::string& endpoint,
                   KeyReport* report) {
  const std::string key = absl::StrCat(section, ".endpoint");
  if (!report->Has(key) || report->IsFaulty(key)) return;
  absl::string_view rest = endpoint;
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") ||
                          absl::ConsumePrefix(&rest, "https://");
  if (absl::StrContains(rest, '@')) {
    // The text is not shown: it may hold a password.
    return report->AddFault(
        key, absl::StrCat(
                 "found a user name or password; wanted http://HOST:PORT or "
                 "https://HOST:PORT, and the keys where ",
                 section, ".credentials says"));
  }
  absl::ConsumeSuffix(&rest, "/");
  if (has_scheme && !rest.empty() && !absl::StrContains(rest, '/')) return;
  report->AddFault(key, absl::StrCat("found ", Shown(endpoint),
                                     "; wanted http://HOST:PORT or "
                                     "https://HOST:PORT"));
}

// Letters and digits, as Azure wants: anything else would change an address.
void CheckAccount(const std::string& account, KeyReport* report) {
  const std::string key = "storage.azure.account";
  if (!report->Has(key) || report->IsFaulty(key)) return;
  const bool fits = account.size() >= 3 && account.size() <= 24 &&
                    std::all_of(account.begin(), account.end(), [](char c) {
                      return absl::ascii_islower(c) || absl::ascii_isdigit(c);
                    });
  if (fits) return;
  report->AddFault(key, absl::StrCat("found ", Shown(account),
                                     "; wanted 3 to 24 small letters and "
                                     "digits"));
}

void ValidateComparison(const v1::Serve& serve, KeyReport* report) {
  const std::string list = "serve.compare_with";
  if (report->IsFaulty(list)) return;
  for (int i = 0; i < serve.compare_with_size(); ++i) {
    const std::string key = ItemKey(list, i);
    if (report->IsFaulty(key)) continue;
    const absl::Status valid =
        ParseConfiguredAddress(serve.compare_with(i)).status();
    if (!valid.ok()) report->AddFault(key, std::string(valid.message()));
  }
}

void ValidateServe(const v1::Config& config, KeyReport* report) {
  ValidateComparison(config.serve(), report);
  for (int i = 0; i < config.serve().listen_size(); ++i) {
    const std::string key = ItemKey("serve.listen", i);
    if (report->IsFaulty(key)) continue;
    const std::string& text = config.serve().listen(i);
    const auto address = ParseConfiguredAddress(text);
    const absl::Status allowed =
        address.ok() ? CheckExposure(*address, text, config.security())
                     : address.status();
    if (!allowed.ok()) {
      report->AddFault(key, std::string(allowed.message()));
    }
  }
  if (!report->Has("serve.http") || report->IsFaulty("serve.http")) return;
  const std::string& http = config.serve().http();
  const auto address = ParseConfiguredAddress(http);
  const absl::Status allowed =
      address.ok() ? CheckHttpExposure(*address, http, config.security())
                   : address.status();
  if (!allowed.ok()) {
    report->AddFault("serve.http", std::string(allowed.message()));
  }
}

void ValidateSecurity(const v1::Config& config, KeyReport* report) {
  const v1::Security& security = config.security();
  if (!report->IsFaulty("security.job") && !IsJobName(security.job())) {
    report->AddFault(
        "security.job",
        absl::StrCat("found ", Shown(security.job()),
                     "; wanted letters, digits, _, . and - alone"));
  }
  if (!report->Has("security.tls") || report->IsFaulty("security.tls")) return;
  int tcp = 0;
  for (const v1::Topology::Server& server : config.topology().servers()) {
    tcp += UnixPath(server.address()).empty();
  }
  if (tcp > 1 && security.tls().client_ca().empty() &&
      !report->Has("security.tls.ca")) {
    report->AddMissing("security.tls.ca",
                       "a PEM file of the CAs of the job's other servers, or "
                       "client_ca");
  }
}

}  // namespace

void ValidateSources(const v1::Config& config, KeyReport* report) {
  absl::flat_hash_map<std::string, int> names;
  absl::flat_hash_map<std::string, int> indexes;
  const auto check_unique = [report](
                                const std::string& key, int i,
                                absl::string_view member,
                                const std::string& value,
                                absl::flat_hash_map<std::string, int>* seen) {
    const auto [first, is_new] = seen->emplace(value, i);
    if (is_new) return;
    report->AddFault(
        ChildKey(key, member),
        absl::StrCat("found ", Shown(value), ", which sources[", first->second,
                     "] has, too; wanted a different one for each source"));
  };
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ItemKey("sources", i);
    if (report->IsFaulty(key)) continue;
    SourceCheck(source, key, report).Run();
    if (report->IsFaulty(ChildKey(key, "name"))) continue;
    check_unique(key, i, "name", source.name(), &names);
    if (report->IsFaulty(ChildKey(key, "name")) ||
        report->IsFaulty(ChildKey(key, "index"))) {
      continue;
    }
    check_unique(key, i, "index", source.index(), &indexes);
  }
  const bool trains = std::any_of(
      config.sources().begin(), config.sources().end(),
      [](const v1::Source& s) { return s.split() == v1::SPLIT_TRAIN; });
  if (!trains && config.sources_size() > 0) {
    report->AddFault(
        "sources",
        absl::StrCat("found ", config.sources_size(),
                     " with `split: valid` or `split: test`; wanted at least "
                     "one with `split: train`, which is the default"));
  }
}

void ValidateOrder(const v1::Config& config, KeyReport* report) {
  CheckSourceWeights(config, report);
  const v1::Order& order = config.order();
  if (!report->IsFaulty("order.mixture_changes")) {
    absl::flat_hash_map<std::string, double> weights;
    for (const v1::Source& source : config.sources()) {
      if (source.split() == v1::SPLIT_TRAIN) {
        weights[source.name()] = source.weight();
      }
    }
    uint64_t before = 0;
    for (int i = 0; i < order.mixture_changes_size(); ++i) {
      const std::string item = ItemKey("order.mixture_changes", i);
      if (report->IsFaulty(item)) continue;
      CheckStep(item, order.mixture_changes(i).step(), &before, report);
      CheckWeights(config, order.mixture_changes(i), item, &weights, report);
    }
  }
  if (report->IsFaulty("order.skips")) return;
  uint64_t before = 0;
  for (int i = 0; i < order.skips_size(); ++i) {
    const std::string item = ItemKey("order.skips", i);
    if (report->IsFaulty(item)) continue;
    CheckStep(item, order.skips(i).step(), &before, report);
  }
}

void ValidateStorage(const v1::Config& config, KeyReport* report) {
  if (report->IsFaulty("storage")) return;
  const v1::Storage& storage = config.storage();
  CheckEndpoint("storage.s3", storage.s3().endpoint(), report);
  CheckEndpoint("storage.gcs", storage.gcs().endpoint(), report);
  CheckEndpoint("storage.azure", storage.azure().endpoint(), report);
  CheckAccount(storage.azure().account(), report);
  if (!config.storage().has_cache() || report->IsFaulty("storage.cache")) {
    return;
  }
  if (!report->IsFaulty("storage.cache.dir") &&
      IsStoreUrl(config.storage().cache().dir())) {
    report->AddFault("storage.cache.dir",
                     "found a store; wanted a folder on a local disk");
  }
}

void ValidateConfig(const v1::Config& config, KeyReport* report) {
  // Broken YAML or not a map: nothing was read.
  if (report->IsFaulty("")) return;
  CheckKeys(config, report);
  ValidateSources(config, report);
  ValidateFields(config, report);
  ValidateModel(config.model(), report);
  ValidateTopology(config, report);
  ValidateBatch(config, report);
  ValidateOrder(config, report);
  ValidateBalance(config, report);
  ValidatePlacement(config, report);
  ValidateAudio(config, report);
  ValidatePairs(config, report);
  ValidatePacking(config, report);
  ValidateServe(config, report);
  ValidateSecurity(config, report);
  ValidateStorage(config, report);
}

}  // namespace ballast
