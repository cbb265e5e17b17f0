#include "server/monitor/client_board.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ballast {

ClientBoard::Entry::Entry(ClientBoard* board, Client client) : board_(board) {
  MutexLock lock(&board_->mutex_);
  place_ = board_->places_.emplace(board_->places_.end());
  MutexLock own(&place_->mutex);
  place_->client = std::move(client);
}

ClientBoard::Entry::~Entry() {
  MutexLock lock(&board_->mutex_);
  board_->places_.erase(place_);
}

void ClientBoard::Entry::Set(const Client& client) {
  MutexLock lock(&place_->mutex);
  place_->client = client;
}

std::vector<ClientBoard::Client> ClientBoard::List() const {
  MutexLock lock(&mutex_);
  std::vector<Client> clients;
  clients.reserve(places_.size());
  for (const Place& place : places_) {
    MutexLock own(&place.mutex);
    clients.push_back(place.client);
  }
  return clients;
}

std::vector<v1::GetStatusResponse::Client> ByLag(
    const std::vector<ClientBoard::Client>& clients,
    std::chrono::steady_clock::time_point now, size_t most) {
  std::vector<const ClientBoard::Client*> order;
  std::map<v1::Split, uint64_t> furthest;
  for (const ClientBoard::Client& client : clients) {
    order.push_back(&client);
    uint64_t& step = furthest[client.role.split()];
    step = std::max(step, client.step);
  }
  const auto lag = [&furthest](const ClientBoard::Client& client) {
    return furthest[client.role.split()] - client.step;
  };
  // The largest lag first.
  const auto key = [&lag](const ClientBoard::Client& client) {
    return std::make_tuple(~lag(client), client.since, client.role.split(),
                           client.role.module(), client.role.dp_rank());
  };
  std::sort(order.begin(), order.end(),
            [&key](const auto* a, const auto* b) { return key(*a) < key(*b); });
  if (order.size() > most) order.resize(most);
  std::vector<v1::GetStatusResponse::Client> list;
  for (const ClientBoard::Client* client : order) {
    v1::GetStatusResponse::Client& entry = list.emplace_back();
    *entry.mutable_role() = client->role;
    entry.set_peer(client->peer);
    entry.set_step(client->step);
    entry.set_micro_batch(client->micro_batch);
    entry.set_lag(lag(*client));
    entry.set_state(client->state);
    entry.set_seconds(std::max(
        std::chrono::duration<double>(now - client->since).count(), 0.0));
    entry.set_held_bytes(client->held_bytes);
    entry.set_shared_memory(client->shared_memory);
    entry.set_blocks(client->blocks);
  }
  return list;
}

}  // namespace ballast
