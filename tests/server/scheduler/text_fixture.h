// A scheduler whose model writes a text in which everything happens soon.

#ifndef TESTS_SERVER_SCHEDULER_TEXT_FIXTURE_H_
#define TESTS_SERVER_SCHEDULER_TEXT_FIXTURE_H_

#include <cstdint>

#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {

class TextSchedulerTest : public SchedulerTest {
 protected:
  void SetUp() override { Begin({}); }

  void Begin(const FakeModel::Sizes& sizes) {
    options_.eos_token_ids = {'e'};
    Start(sizes);
    // Mostly letters, and bytes of characters of two and three bytes.
    model_->bias.assign(260, -6);
    for (int id : {'a', 'b', 'c', ' '}) model_->bias[id] = 0;
    for (int id : {0xC3, 0xA9, 0xE2, 0x82, 0xAC}) model_->bias[id] = 1;
    model_->bias['e'] = -2;
  }

  // With all that depends on what an output has so far.
  static Request Everything(int64_t max_tokens, uint64_t seed) {
    Request request = MakeRequest(Ids(11), max_tokens);
    request.sampling.seed = seed;
    request.sampling.repetition_penalty = 1.1;
    request.sampling.presence_penalty = 0.3;
    request.sampling.frequency_penalty = 0.2;
    request.sampling.penalty_window = 9;
    request.sampling.top_p = 0.95;
    request.stopping.min_tokens = 4;
    request.stopping.stop_strings = {"bc a", "\xC3\xA9\xE2\x82\xAC", "cc"};
    request.response.logprobs = 2;
    return request;
  }
};

}  // namespace flash

#endif  // TESTS_SERVER_SCHEDULER_TEXT_FIXTURE_H_
