// The newest version of an object that a page shows.

import { useEffect, useState } from "preact/hooks";

import { getObject } from "../api/resources";
import type { KubeObject, Resource } from "../api/types";

/**
 * Returns the object with its kind. Items of watches have one, but those of lists may not: then the object is read once.
 */
export function useObject(type: Resource, object: KubeObject): { current: KubeObject; error: unknown } {
  const [read, setRead] = useState<KubeObject>();
  const [error, setError] = useState<unknown>();
  const isComplete = object.kind !== undefined && object.apiVersion !== undefined;
  useEffect(() => {
    if (isComplete) return undefined;
    const controller = new AbortController();
    getObject(type, object.metadata.namespace ?? "", object.metadata.name, controller.signal).then(setRead, (failure: unknown) => {
      if (!controller.signal.aborted) setError(failure);
    });
    return () => controller.abort();
  }, [object.metadata.uid, object.metadata.resourceVersion, isComplete]);
  return { current: isComplete ? object : (read ?? object), error };
}
