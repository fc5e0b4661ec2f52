// Components of chunks that are loaded when they are first shown.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Loading, Problem } from "./basics";

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const [Component, setComponent] = useState(() => loaded);
    const [error, setError] = useState<unknown>();
    useEffect(() => {
      if (loaded) return;
      load().then((component) => {
        loaded = component;
        setComponent(() => component);
      }, setError);
    }, []);
    if (error) return <Problem error={error} />;
    return Component ? <Component {...props} /> : <Loading />;
  };
}
