"use strict";
// The status of a bundle in words: what training found doubtful, and how accurate it expects to be.

const STATUS_MEANS = {
  "nothing new found": "training found no class that the source lacks",
  "weak transfer": "many target images of known classes are expected to be wrong",
  doubtful: "more target images than usual are expected to be wrong",
  collapsed: "almost every target image was predicted as one kind, known or new",
  "k unsure": "the number of discovered classes is uncertain",
  "unstable k": "the number of discovered classes changed until the end of training",
  "k at its bound": "there may be more discovered classes than the limit allowed",
  "fewer than asked for": "fewer classes were discovered than requested",
  "game collapsed": "pre-training did not separate known from new images",
  "unsteady training": "the training loss was unsteady",
  diverged: "training diverged",
  "empty class": "a class has no image in the target",
};

/** Returns one sentence about a list of statuses, or nothing if training found no doubt. */
function statusSentence(statuses) {
  const doubts = statuses.filter((status) => status !== "ok");
  if (!doubts.length) return "";
  const named = doubts.map((status) => (STATUS_MEANS[status] ? `${status} (${STATUS_MEANS[status]})` : status));
  return `Training status: ${named.join(", ")}.`;
}

/** Returns one sentence about the expected accuracy, or nothing for a bundle without an estimate. */
function trustSentence(trust) {
  if (!trust) return "";
  const [expected, low, high] = [trust.expected_accuracy, trust.low, trust.high].map((share) => Math.round(100 * share));
  return `About ${expected} of 100 images of known classes are expected to be right (${low} to ${high}).`;
}
