#ifndef BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
#define BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_

#include "proto/config.pb.h"
#include "server/config/key_report.h"

namespace ballast {

// Adds to `report` all faults of a configuration beyond the type and range of
// single values: missing keys (CheckKeys), and values that contradict each
// other. `config`
// has its defaults; `report` knows which keys the file contains. Keys that
// `report` already lists as faulty are not checked again. Accesses no file.
void ValidateConfig(const v1::Config& config, KeyReport* report);

// Checks of single sections.
void ValidateBalance(const v1::Config& config, KeyReport* report);
void ValidateBatch(const v1::Config& config, KeyReport* report);
void ValidateOrder(const v1::Config& config, KeyReport* report);
void ValidateSources(const v1::Config& config, KeyReport* report);
void ValidateModel(const v1::Model& model, KeyReport* report);
void ValidateModelFamily(const v1::Model& model, KeyReport* report);
void ValidatePacking(const v1::Config& config, KeyReport* report);
void ValidatePairs(const v1::Config& config, KeyReport* report);
void ValidatePlacement(const v1::Config& config, KeyReport* report);
void ValidateAudio(const v1::Config& config, KeyReport* report);
void ValidateStorage(const v1::Config& config, KeyReport* report);
void ValidateTopology(const v1::Config& config, KeyReport* report);
void ValidateVideo(const v1::Model& model, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
