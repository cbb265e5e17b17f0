#ifndef BALLAST_TESTS_SIMULATION_SIM_NETWORK_H_
#define BALLAST_TESTS_SIMULATION_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/sim_threads.h"

namespace ballast {

class SimServer;

// One call between a rank's node and a server's: a Pull, or a unary call. The
// network holds it weakly.
class SimConnection : public std::enable_shared_from_this<SimConnection> {
 public:
  virtual ~SimConnection() = default;
  // The end at `node` learns that the connection is lost. Must not wait.
  virtual void Lose(int node, const std::string& why) = 0;

  int client = 0;  // node
  int server = 0;  // node; 0 before it is known
  int server_machine = 0;
};

// Machines, the processes on them (nodes), and the links between machines. Each
// message takes a random time; messages of one pipe stay in order and overtake
// those of others. A link that is cut in one direction keeps its messages until
// it heals, as TCP does; a connection that hears nothing for kKeepalive is lost
// on both sides. Only simulated threads and events call it, so it has no lock.
class SimNetwork {
 public:
  // A ping every 10 s, and 10 s for its answer.
  static constexpr absl::Duration kKeepalive = absl::Seconds(20);

  struct Options {
    uint64_t seed = 0;
    absl::Duration most_latency = absl::Milliseconds(2);
    int handlers = 2;     // threads of each node that run reactions
    uint64_t window = 4;  // messages that a receiver has not read
  };
  explicit SimNetwork(const Options& options)
      : options_(options), random_(options.seed) {}

  // Returns a new node on `machine`.
  int AddNode(int machine);
  // Ends the node's threads once they have run all reactions, and waits for
  // that.
  void StopNode(int node);
  int machine(int node) const { return nodes_.at(node).machine; }

  // The process that serves `address`; null: connections are refused. The
  // machine of an address never changes.
  void Listen(const std::string& address, int machine, SimServer* server);
  SimServer* At(const std::string& address) const;
  int MachineOf(const std::string& address) const;

  // Runs `reaction` on a thread of `node`, after a random short time.
  void Post(int node, std::function<void()> reaction);

  void Add(const std::shared_ptr<SimConnection>& connection);
  // Counts the server's ends of calls, which its process waits for.
  void BeginCall(int node) { ++nodes_.at(node).calls; }
  void EndCall(int node);
  void AwaitNoCalls(int node);

  // Faults.
  void Cut(int from_machine, int to_machine);
  void Heal(int from_machine, int to_machine);
  void Freeze(int node);
  void Thaw(int node);
  // The process is gone; its peers learn of it as soon as a message can reach
  // them.
  void Crash(int node);
  bool crashed(int node) const { return nodes_.at(node).crashed; }
  // Breaks every connection between the machines.
  void Reset(int machine, int other);

  uint64_t window() const { return options_.window; }
  absl::Duration Latency();
  SimRandom& random() { return random_; }

  // One direction of one connection.
  class Pipe : public std::enable_shared_from_this<Pipe> {
   public:
    Pipe(SimNetwork* network, int from_machine, int to_machine)
        : network_(network), link_(from_machine, to_machine) {}
    // Runs `arrive` as an event when the message has arrived.
    void Send(std::function<void()> arrive);
    // Delivers what is due, unless the link is cut.
    void Pump();

   private:
    struct Message {
      absl::Time due;
      std::function<void()> arrive;
    };
    SimNetwork* const network_;
    const std::pair<int, int> link_;
    std::deque<Message> messages_;
  };

 private:
  struct Node {
    int machine = 0;
    bool stopping = false;
    bool crashed = false;
    std::vector<std::function<void()>> reactions;
    std::vector<SimThread*> handlers;
    int calls = 0;
    uint64_t freezes = 0;
  };
  struct Listener {
    int machine = 0;
    SimServer* server = nullptr;
  };

  void Handle(int node);
  // Calls `lose` for each living connection that fits.
  void ForEach(const std::function<bool(const SimConnection&)>& fits,
               const std::function<void(SimConnection*)>& lose);
  bool Joins(const SimConnection& connection, int machine, int other) const;

  const Options options_;
  SimRandom random_;
  std::map<int, Node> nodes_;
  std::map<std::string, Listener> listeners_;
  std::vector<std::weak_ptr<SimConnection>> connections_;
  // Links that are cut, by the number of the cut.
  std::map<std::pair<int, int>, uint64_t> cuts_;
  uint64_t cuts_made_ = 0;
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Pipe>>> blocked_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_NETWORK_H_
