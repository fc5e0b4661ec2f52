// The event chain as a waterfall: one lane for each object, one mark for each step.

export type Stage =
  | "Written" | "Seen" | "Bound" | "Sandbox" | "Image" | "Created" | "Started" | "Initialized" | "Ready" | "Published" | "Rules" | "Other";

export interface Step {
  at: string;
  precise: boolean;
  object: string;
  what: string;
  by: string;
  stage: Stage;
}

export interface Chain {
  steps: Step[];
  count: number;
  missing: string[];
  gone: boolean;
}

export interface Mark {
  step: Step;
  /** Position from 0 to 1. */
  position: number;
  /** Milliseconds after the first step. */
  after: number;
}

export interface Lane {
  object: string;
  marks: Mark[];
  start: number;
  end: number;
}

export interface Waterfall {
  lanes: Lane[];
  /** The first mark of each part of the cluster. */
  reached: Map<Part, Mark>;
  /** Duration of the shown part in milliseconds. */
  span: number;
}

/** The parts of a cluster in the order in which a change flows through them. */
export const PARTS = ["apiserver", "controllers", "scheduler", "kubelet", "runtime", "endpoints", "proxy"] as const;
export type Part = (typeof PARTS)[number];

const PART_OF: Record<Stage, Part | undefined> = {
  Written: "apiserver",
  Seen: "controllers",
  Bound: "scheduler",
  Sandbox: "kubelet",
  Image: "kubelet",
  Created: "runtime",
  Started: "runtime",
  Initialized: "kubelet",
  Ready: "kubelet",
  Published: "endpoints",
  Rules: "proxy",
  Other: undefined,
};

/** Returns the part of the cluster that made a step. Deployments become ready by their controller. */
export function partOf(step: Step): Part | undefined {
  if (step.stage === "Ready" && !step.object.startsWith("Pod/")) return "controllers";
  // A later write is not a separate stage.
  if (step.stage === "Other" && step.what.startsWith("changed")) return "apiserver";
  return PART_OF[step.stage];
}

/**
 * Returns the lanes in the order of their first steps. The server sorts steps causally, also those whose times have a
 * resolution of a second: within a second, a step is placed no earlier than the step before it.
 */
export function waterfall(steps: Step[], since = 0): Waterfall {
  const shown = steps.filter((step) => Date.parse(step.at) >= since);
  let floor = 0;
  const times = shown.map((step) => {
    const at = Date.parse(step.at);
    const placed = !step.precise && at < floor && floor < at + 1000 ? floor : at;
    floor = Math.max(floor, placed);
    return placed;
  });
  const start = times.length > 0 ? Math.min(...times) : 0;
  const span = Math.max(1, (times.length > 0 ? Math.max(...times) : 0) - start);
  const lanes = new Map<string, Lane>();
  const reached = new Map<Part, Mark>();
  shown.forEach((step, index) => {
    const after = times[index]! - start;
    const mark = { step, after, position: after / span };
    const part = partOf(step);
    if (part && !reached.has(part)) reached.set(part, mark);
    const lane = lanes.get(step.object);
    if (lane) {
      lane.marks.push(mark);
      lane.start = Math.min(lane.start, mark.position);
      lane.end = Math.max(lane.end, mark.position);
    } else {
      lanes.set(step.object, { object: step.object, marks: [mark], start: mark.position, end: mark.position });
    }
  });
  return { lanes: [...lanes.values()], reached, span };
}
