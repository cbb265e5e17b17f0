// Linked to the shim's library: adds a tensor to every batch.

#include "tests/trainer_shim/host/added_row.h"

namespace ballast {
namespace {

[[maybe_unused]] const bool added = AddTensorRow(EndsRow());

}  // namespace
}  // namespace ballast
