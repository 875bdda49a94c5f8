// What becomes of the states at chunk boundaries, where they are small: those
// of prompts are offered to the prefix states, those of outputs are
// checkpoints, and some are the way back to before a stop string.

#ifndef SERVER_SCHEDULER_BOUNDARY_STATES_H_
#define SERVER_SCHEDULER_BOUNDARY_STATES_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "server/model/language_model.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/live_request.h"
#include "server/scheduler/slot_states.h"
#include "server/scheduler/state_wiper.h"

namespace flash {

// A copy takes time, which a step waits for, and many slots may come to a
// boundary at once. So what is wanted is noted, and copied when the scheduler
// has time for it; until then the request does not run.
//
// Thread safety: the decode thread only.
class BoundaryStates {
 public:
  // All are borrowed.
  BoundaryStates(const EngineOptions& options, const LanguageModel* model,
                 SlotStates* states, StateWiper* wiper)
      : options_(options), model_(*model), states_(*states), wiper_(*wiper) {}

  // Lets a request that has slots begin with the longest beginning of its
  // prompt (and prior ids) that is at hand.
  void Find(LiveRequest& request);

  // The slot of `output` stands at a boundary. `is_prompt`: it ran the prompt
  // of all outputs up to there. If its state is wanted a copy is due.
  void Visit(LiveRequest& request, LiveOutput& output, bool is_prompt);

  // Makes the copy that has been due for longest, and gives it to those who
  // want it. False if none is due. REQUIRES: no Keep() is due.
  bool CopyOne();

  // The request is done: no copy of it is due any more.
  void Drop(const LiveRequest& request);

 private:
  bool HasCheckpoints(const Request& request) const;
  // Moves the key on to the boundary, chunk by chunk.
  void MoveKey(LiveRequest& request, const LiveOutput& output,
               size_t num_chunks) const;

  // A copy, and who wants it.
  struct Due {
    LiveRequest* request = nullptr;
    LiveOutput* output = nullptr;
    std::vector<LiveOutput*> bases;  // those whose way back it becomes
    bool is_prefix = false;
    bool is_checkpoint = false;
  };
  void Give(const Due& due, std::shared_ptr<const std::string> state);

  const EngineOptions& options_;
  const LanguageModel& model_;
  SlotStates& states_;
  StateWiper& wiper_;
  std::deque<Due> due_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_BOUNDARY_STATES_H_
