#ifndef BALLAST_TESTS_SIMULATION_SIM_SILENCE_H_
#define BALLAST_TESTS_SIMULATION_SIM_SILENCE_H_

#include <fcntl.h>
#include <unistd.h>

namespace ballast {

// While it lives, standard error goes nowhere.
class Silence {
 public:
  explicit Silence(bool silent) {
    if (!silent) return;
    before_ = dup(STDERR_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  ~Silence() {
    if (before_ < 0) return;
    dup2(before_, STDERR_FILENO);
    close(before_);
  }

 private:
  int before_ = -1;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_SILENCE_H_
