#include "tests/simulation/sim_network.h"

#include <algorithm>

namespace ballast {
namespace {

SimThreads& Threads() { return *SimThreads::Current(); }

constexpr char kKeepaliveLost[] = "keepalive watchdog timeout";

}  // namespace

absl::Duration SimNetwork::Latency() {
  return random_.Between(absl::Microseconds(10), options_.most_latency);
}

int SimNetwork::AddNode(int machine) {
  const int number = static_cast<int>(nodes_.size()) + 1;
  Node& node = nodes_[number];
  node.machine = machine;
  for (int i = 0; i < options_.handlers; ++i) {
    node.handlers.push_back(
        Threads().Start(number, [this, number] { Handle(number); }));
  }
  return number;
}

void SimNetwork::StopNode(int number) {
  Node& node = nodes_.at(number);
  node.stopping = true;
  Threads().NotifyAll(&node);
  for (SimThread* handler : node.handlers) Threads().Join(handler);
  node.handlers.clear();
}

void SimNetwork::Handle(int number) {
  Node& node = nodes_.at(number);
  while (true) {
    if (node.reactions.empty()) {
      if (node.stopping) return;
      Threads().Wait(&node);
      continue;
    }
    const size_t next = random_.Below(node.reactions.size());
    const std::function<void()> reaction = std::move(node.reactions[next]);
    node.reactions.erase(node.reactions.begin() + next);
    reaction();
  }
}

void SimNetwork::Post(int number, std::function<void()> reaction) {
  Threads().At(Threads().Now() + random_.Between(absl::ZeroDuration(),
                                                 absl::Microseconds(50)),
               [this, number, reaction = std::move(reaction)] {
                 Node& node = nodes_.at(number);
                 node.reactions.push_back(reaction);
                 Threads().NotifyOne(&node);
               });
}

void SimNetwork::Listen(const std::string& address, int machine,
                        SimServer* server) {
  listeners_[address] = {machine, server};
}

SimServer* SimNetwork::At(const std::string& address) const {
  return listeners_.at(address).server;
}

int SimNetwork::MachineOf(const std::string& address) const {
  return listeners_.at(address).machine;
}

void SimNetwork::Add(const std::shared_ptr<SimConnection>& connection) {
  connections_.push_back(connection);
  // A connection that is opened over a cut link is never established.
  const int client = nodes_.at(connection->client).machine;
  const int server = connection->server_machine;
  if (cuts_.count({client, server}) == 0 &&
      cuts_.count({server, client}) == 0) {
    return;
  }
  Threads().At(Threads().Now() + kKeepalive,
               [this, client, server, weak = std::weak_ptr(connection)] {
                 const auto still = weak.lock();
                 if (still != nullptr && (cuts_.count({client, server}) > 0 ||
                                          cuts_.count({server, client}) > 0)) {
                   still->Lose(still->client, "connection timed out");
                   if (still->server != 0) {
                     still->Lose(still->server, kKeepaliveLost);
                   }
                 }
               });
}

void SimNetwork::EndCall(int number) {
  Node& node = nodes_.at(number);
  if (--node.calls == 0) Threads().NotifyAll(&node.calls);
}

void SimNetwork::AwaitNoCalls(int number) {
  Node& node = nodes_.at(number);
  while (node.calls > 0) Threads().Wait(&node.calls);
}

void SimNetwork::ForEach(const std::function<bool(const SimConnection&)>& fits,
                         const std::function<void(SimConnection*)>& lose) {
  std::vector<std::shared_ptr<SimConnection>> living;
  for (const auto& weak : connections_) {
    if (auto connection = weak.lock()) living.push_back(std::move(connection));
  }
  connections_.assign(living.begin(), living.end());
  for (const auto& connection : living) {
    if (fits(*connection)) lose(connection.get());
  }
}

bool SimNetwork::Joins(const SimConnection& connection, int machine,
                       int other) const {
  const int client = nodes_.at(connection.client).machine;
  const int server = connection.server_machine;
  return (client == machine && server == other) ||
         (client == other && server == machine);
}

void SimNetwork::Cut(int from, int to) {
  const uint64_t cut = ++cuts_made_;
  cuts_[{from, to}] = cut;
  Threads().At(Threads().Now() + kKeepalive, [this, from, to, cut] {
    const auto found = cuts_.find({from, to});
    if (found == cuts_.end() || found->second != cut) return;
    ForEach([&](const SimConnection& c) { return Joins(c, from, to); },
            [](SimConnection* c) {
              c->Lose(c->client, kKeepaliveLost);
              if (c->server != 0) c->Lose(c->server, kKeepaliveLost);
            });
  });
}

void SimNetwork::Heal(int from, int to) {
  cuts_.erase({from, to});
  std::vector<std::shared_ptr<Pipe>> pipes;
  pipes.swap(blocked_[{from, to}]);
  for (const auto& pipe : pipes) {
    Threads().At(Threads().Now() + Latency(), [pipe] { pipe->Pump(); });
  }
}

void SimNetwork::Freeze(int number) {
  Threads().SetFrozen(number, true);
  const uint64_t freeze = ++nodes_.at(number).freezes;
  Threads().At(Threads().Now() + kKeepalive, [this, number, freeze] {
    if (!Threads().IsFrozen(number) || nodes_.at(number).freezes != freeze) {
      return;
    }
    // The frozen side's reaction waits until it thaws.
    ForEach(
        [&](const SimConnection& c) {
          return c.client == number || c.server == number;
        },
        [](SimConnection* c) {
          c->Lose(c->client, kKeepaliveLost);
          if (c->server != 0) c->Lose(c->server, kKeepaliveLost);
        });
  });
}

void SimNetwork::Thaw(int number) { Threads().SetFrozen(number, false); }

void SimNetwork::Crash(int number) {
  nodes_.at(number).crashed = true;
  Thaw(number);
  ForEach(
      [&](const SimConnection& c) {
        return c.client == number || c.server == number;
      },
      [&](SimConnection* c) {
        const int peer = c->client == number ? c->server : c->client;
        c->Lose(number, "this process is gone");
        if (peer == 0) return;
        const int client = machine(c->client);
        const int server = c->server_machine;
        if (cuts_.count({client, server}) == 0 &&
            cuts_.count({server, client}) == 0) {
          c->Lose(peer, "connection reset by peer");
          return;
        }
        Threads().At(Threads().Now() + kKeepalive,
                     [peer, weak = c->weak_from_this()] {
                       if (const auto still = weak.lock()) {
                         still->Lose(peer, kKeepaliveLost);
                       }
                     });
      });
}

void SimNetwork::Reset(int machine, int other) {
  ForEach([&](const SimConnection& c) { return Joins(c, machine, other); },
          [](SimConnection* c) {
            c->Lose(c->client, "connection reset by peer");
            if (c->server != 0) c->Lose(c->server, "connection reset by peer");
          });
}

void SimNetwork::Pipe::Send(std::function<void()> arrive) {
  absl::Time due = Threads().Now() + network_->Latency();
  if (!messages_.empty()) due = std::max(due, messages_.back().due);
  messages_.push_back({due, std::move(arrive)});
  Threads().At(due, [self = shared_from_this()] { self->Pump(); });
}

void SimNetwork::Pipe::Pump() {
  while (!messages_.empty() && messages_.front().due <= Threads().Now()) {
    if (network_->cuts_.count(link_) > 0) {
      network_->blocked_[link_].push_back(shared_from_this());
      return;
    }
    const std::function<void()> arrive = std::move(messages_.front().arrive);
    messages_.pop_front();
    arrive();
  }
}

}  // namespace ballast
