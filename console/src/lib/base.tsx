import { type ComponentChildren, options, type VNode } from "preact";
import { LocationProvider, useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";

// base is the path below which a proxy serves the gateway, such as /berth, or "". Views, links
// and calls name paths without it.
export const base = document.querySelector<HTMLMetaElement>('meta[name="berth-base"]')?.content ?? "";

// Every link to a view gets the base path.
const before = options.vnode;
options.vnode = (vnode: VNode<{ href?: unknown }>) => {
  const { props } = vnode;
  // A copy of a link has the base path already. No view has a path that begins with it.
  if (base && vnode.type === "a" && typeof props.href === "string" && props.href.startsWith("/") && !props.href.startsWith(base + "/")) {
    props.href = base + props.href;
  }
  before?.(vnode);
};

const without = (path: string) => (path === base || path.startsWith(base + "/") ? path.slice(base.length) || "/" : path);

// Location provides the location below the base path to the views.
export function Location({ children }: { children: ComponentChildren }) {
  return (
    <LocationProvider>
      <Below>{children}</Below>
    </LocationProvider>
  );
}

function Below({ children }: { children: ComponentChildren }) {
  const here = useLocation();
  const below = useMemo(
    () => ({
      ...here,
      url: without(here.url),
      path: without(here.path),
      route: (to: string, replace?: boolean) => here.route(base + to, replace),
    }),
    [here],
  );
  return <LocationProvider.ctx.Provider value={below}>{children}</LocationProvider.ctx.Provider>;
}
