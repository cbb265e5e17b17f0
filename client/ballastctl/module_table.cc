#include "client/ballastctl/module_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ballastctl/quantities.h"
#include "common/table.h"
#include "proto/schedule/module.h"

namespace ballast {

std::string ModuleTable(const v1::Job& job, const Snapshot* now) {
  const bool even = now != nullptr && now->balance.has_value();
  std::vector<Table::Column> columns = {
      {"module", Table::kLeft}, {"dp"}, {"align"}};
  if (even) {
    columns.insert(columns.end(),
                   {{"slowest/mean as read"}, {"as trained"}, {"moved"}});
  }
  Table table(std::move(columns));
  for (const v1::Job::ModuleSize& module : job.modules()) {
    std::vector<std::string> row = {std::string(ModuleName(module.module())),
                                    absl::StrCat(module.dp()),
                                    absl::StrCat(module.align())};
    if (even) {
      for (const v1::ModuleBalance& balance : now->balance->modules()) {
        if (balance.module() != module.module()) continue;
        row.insert(row.end(), {RatioText(balance.spread_before()),
                               RatioText(balance.spread_after()),
                               BytesText(balance.within_servers().bytes() +
                                         balance.between_servers().bytes())});
      }
    }
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

}  // namespace ballast
