#ifndef BALLAST_SERVER_MONITOR_CLIENT_BOARD_H_
#define BALLAST_SERVER_MONITOR_CLIENT_BOARD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// The Pulls of a server and the state of each. Thread-safe.
class ClientBoard {
 public:
  using State = v1::GetStatusResponse::Client::State;

  struct Client {
    v1::Role role;
    std::string peer;
    // The block that the client got last or is getting; before the first block,
    // the one that it requested.
    uint64_t step = 0;
    uint32_t micro_batch = 0;
    State state = v1::GetStatusResponse::Client::STATE_HOLDS_BACK;
    std::chrono::steady_clock::time_point since;
    uint64_t held_bytes = 0;
    bool shared_memory = false;
    uint64_t blocks = 0;
  };

  // Each has its own lock, so that clients do not wait for each other.
  struct Place {
    mutable Mutex mutex;
    Client client ABSL_GUARDED_BY(mutex);
  };

  // Keeps a client on the board until it is destroyed. For one thread at a
  // time.
  class Entry {
   public:
    // `board` must outlive this.
    Entry(ClientBoard* board, Client client);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // Replaces the board's record of the client.
    void Set(const Client& client);

   private:
    ClientBoard* const board_;
    std::list<Place>::iterator place_;
  };

  std::vector<Client> List() const;

 private:
  mutable Mutex mutex_;
  std::list<Place> places_ ABSL_GUARDED_BY(mutex_);
};

// At most `most` clients for GetStatus: largest lag after the leading client of
// their split first; among equals, longest in their state first.
std::vector<v1::GetStatusResponse::Client> ByLag(
    const std::vector<ClientBoard::Client>& clients,
    std::chrono::steady_clock::time_point now, size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_MONITOR_CLIENT_BOARD_H_
